package manager_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

// TestPartsOfWhatChangesAllTheTime: what a container is created with can be mounted when it is started, however often the volume was
// updated in between (kubernetes/kubernetes#127602). The kernel mounts nothing whose name is gone.
func TestPartsOfWhatChangesAllTheTime(t *testing.T) {
	const pods, containers = 8, 4
	w := newWorld(t)
	m, _ := w.start(w.config())
	uid := func(i int) types.UID { return types.UID(fmt.Sprintf("uid-%d", i)) }
	change := func(version int) {
		data := map[string]string{"key": strconv.Itoa(version), "other": strconv.Itoa(-version)}
		w.setConfigMap("conf", data)
		w.setSecret("keys", data)
		for i := range pods {
			w.want(newPartsPod(uid(i), containers, version))
		}
	}
	change(1)
	all := make([]*v1.Pod, pods)
	for i := range all {
		all[i] = w.pod(uid(i))
		must(t, m.Prepare(t.Context(), all[i], w))
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	defer func() {
		close(stop)
		<-stopped
	}()
	go func() {
		defer close(stopped)
		last := filepath.Join(w.root, "pods", string(uid(pods-1)), "volumes/kubernetes.io~configmap/conf/..data")
		for version := 2; ; version++ {
			before, _ := os.Readlink(last)
			change(version)
			for now := before; now == before; now, _ = os.Readlink(last) {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
			}
		}
	}()
	for attempt := range 2 {
		var created sync.WaitGroup
		parts := make([][]*runtimeapi.Mount, pods*containers)
		for i := range parts {
			created.Go(func() {
				p := all[i/containers]
				c := &p.Spec.Containers[i%containers]
				mounts, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: c.Name, Attempt: attempt})
				if err != nil {
					t.Error(err)
					return
				}
				parts[i] = mounts[:len(c.VolumeMounts)]
			})
		}
		created.Wait()
		awaitUpdates(t, w, 5*pods)
		for i, mounts := range parts {
			for _, mount := range mounts {
				if err := mountPart(mount.HostPath, filepath.Join(w.root, "rootfs")); err != nil {
					t.Errorf("%s of container %d, instance %d, can't be mounted: %v", mount.ContainerPath, i, attempt, err)
				}
			}
		}
	}
	for _, p := range all {
		must(t, m.Clean(t.Context(), p.UID))
	}
	w.clean()
}

// newPartsPod has containers with a part of a volume of each kind that is kept up to date: files, and directories.
func newPartsPod(uid types.UID, containers, version int) *v1.Pod {
	items := []v1.KeyToPath{{Key: "key", Path: "d/key"}}
	dir, projected := configMap("dir", "conf"), v1.Volume{Name: "projected"}
	dir.ConfigMap.Items = items
	projected.Projected = &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "keys"}, Items: items}},
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "conf"}}},
	}}
	p := namedPod(string(uid), uid, configMap("conf", "conf"), secretVolume("keys", "keys"), labels("labels"), dir, projected)
	p.Labels = map[string]string{"version": strconv.Itoa(version)}
	p.Spec.Containers = make([]v1.Container, containers)
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		c.Name = fmt.Sprintf("c%d", i)
		for volume, part := range map[string]string{"conf": "key", "keys": "key", "labels": "labels", "dir": "d", "projected": "d/key"} {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: volume, MountPath: "/" + volume, SubPath: part})
		}
	}
	return p
}

// awaitUpdates waits until each of the volumes has been updated so often that what was in it before is gone.
func awaitUpdates(t *testing.T, w *world, volumes int) {
	t.Helper()
	links, err := filepath.Glob(filepath.Join(w.root, "pods", "*", "volumes", "*", "*", "..data"))
	if err != nil || len(links) != volumes {
		t.Fatalf("volumes: %v, %v", links, err)
	}
	seen := map[string]map[string]bool{}
	for _, link := range links {
		seen[link] = map[string]bool{}
	}
	eventually(t, "all volumes have been updated", func() bool {
		for link, generations := range seen {
			generation, err := os.Readlink(link)
			generations[generation] = true
			if err != nil || len(generations) > 3 {
				delete(seen, link)
			}
		}
		return len(seen) == 0
	})
}

// mountPart mounts a part of a volume as a runtime does, for a moment.
func mountPart(part, target string) error {
	st, err := os.Stat(part)
	if err != nil {
		return err
	}
	file := target
	if st.IsDir() {
		file = filepath.Join(target, "key")
		err = os.Mkdir(target, 0o700)
	} else {
		err = os.WriteFile(target, nil, 0o600)
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(part, target, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	detach(target)
	if err == nil && strings.TrimSpace(string(text)) == "" {
		err = errors.New("it is empty")
	}
	return errors.Join(err, os.Remove(target))
}
