// Package volumetest is the contract of all volume plugins, as tests: the behaviour that the manager relies on,
// whatever the kind of volume. The tests make real mounts, so the package that calls Run needs a TestMain with
// mounttest.Run.
//
//	func TestContract(t *testing.T) {
//		objects := newObjects() // in memory; the plugin reads them
//		volumetest.Run(t, volumetest.Case{
//			Plugin: New(objects),
//			Spec:   func(string) volume.Spec { return volume.Spec{Volume: &v1.Volume{...}} },
//			Want:   map[string]string{"key": "value 0"},
//			Change: func(n int) map[string]string { objects.set(n); return map[string]string{"key": ...} },
//		})
//	}
//
// Run may be called several times in a test function, each time in a t.Run of its own. Its arguments are made again in
// the child processes that are killed (see killtest), so they must not depend on the effects of earlier tests.
package volumetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
)

// Case is a plugin with a volume of its kind and the expected behaviour.
type Case struct {
	Plugin volume.Plugin
	// Spec returns the volume. host is a directory of the test for files outside of the pod's directory, such as the
	// path of a hostPath volume or a PersistentVolume's directory.
	Spec func(host string) volume.Spec
	// Prepare makes the files that the volume needs in the empty directory host. It may be nil.
	Prepare func(host string) error
	// Pod changes the pod, which is called default/web, and has one container and the volume. It may be nil.
	Pod func(*v1.Pod)
	// Objects are the API objects that the pod may use. It may be nil.
	Objects object.View

	// Want is the content that containers find in the volume at first: the content of files by path, with symbolic
	// links followed; nil for an empty volume. Names that begin with ".." are omitted.
	Want map[string]string
	// Change makes version n of the source of a Live plugin's volume, and returns the content that containers should
	// then find. Version 0 is the initial one. Change is nil for other plugins.
	Change func(n int) map[string]string

	// Writable says that containers may write to the volume.
	Writable bool
	// InMemory says that files which containers wrote are lost when the node restarts.
	InMemory bool
	// Outlives says that files which containers wrote stay when the pod is gone.
	Outlives bool
	// Elsewhere says that the volume isn't in its usual place below the pod's directory: hostPath, images.
	Elsewhere bool
	// IgnoresGroup says that fsGroup doesn't apply to volumes of this kind.
	IgnoresGroup bool
	// Stepless says that Mount changes nothing on the node's disk: there is no step to kill a child at.
	Stepless bool
}

// Run tests the plugin.
func Run(t *testing.T, c Case) {
	t.Run("supports only its kind", c.supports)
	t.Run("ready once mounted", c.ready)
	t.Run("mounted again", c.again)
	t.Run("belongs to the fsGroup", c.group)
	t.Run("after a reboot", c.reboot)
	t.Run("an ended context", c.canceled)
	t.Run("teardown", c.teardown)
	t.Run("two pods at a time", c.parallel)
	if !c.Elsewhere {
		t.Run("half made", c.halfMade)
		t.Run("a link in its place", c.link)
	}
	if c.Change != nil {
		t.Run("follows its source", c.follows)
		t.Run("read while it changes", c.readWhileItChanges)
	}
	if !c.Stepless {
		t.Run("killed", c.killed)
	}
}

// group is the fsGroup of a pod that has one.
const group = 2345

// rig is one volume of one pod, in a directory of the test.
type rig struct {
	Case
	// root contains the pods' directories. host is the argument of Case.Spec.
	root, host string
	request    volume.Request
}

// newRig makes the files outside of the pod's directory, and the request.
func newRig(t *testing.T, c Case) *rig {
	t.Helper()
	dir := t.TempDir()
	if err := c.prepare(dir); err != nil {
		t.Fatal(err)
	}
	r := c.rig(dir, "uid-1")
	t.Cleanup(func() { unmountAll(t, r.root) })
	return r
}

// prepare makes the files that the volume needs below dir.
func (c Case) prepare(dir string) error {
	if c.Change != nil {
		c.Change(0)
	}
	host := filepath.Join(dir, "host")
	if err := os.MkdirAll(host, 0o755); err != nil {
		return err
	}
	// The agent's root directory contains the pods' directory, whatever the plugin makes below it.
	if err := os.MkdirAll(filepath.Join(dir, "root", "pods"), 0o750); err != nil {
		return err
	}
	if c.Prepare == nil {
		return nil
	}
	return c.Prepare(host)
}

// rig returns a request for the volume of a pod, with all paths below dir.
func (c Case) rig(dir, uid string) *rig {
	r := &rig{Case: c, root: filepath.Join(dir, "root"), host: filepath.Join(dir, "host")}
	spec := c.Spec(r.host)
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: types.UID(uid)},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main"}}, Volumes: []v1.Volume{*spec.Volume}},
	}
	if c.Pod != nil {
		c.Pod(p)
	}
	plugin := strings.ReplaceAll(c.Plugin.Name(), "/", "~")
	r.request = volume.Request{Pod: p, Objects: c.Objects, Spec: spec, Place: volume.Place{
		UID:  p.UID,
		Dir:  filepath.Join(r.root, "pods", uid, "volumes", plugin, spec.Name()),
		Meta: filepath.Join(r.root, "pods", uid, "plugins", plugin, spec.Name()),
	}}
	return r
}

// podDir returns the directory of the pod.
func (r *rig) podDir() string { return filepath.Join(r.root, "pods", string(r.request.UID)) }

func (r *rig) withGroup() {
	r.request.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](group)}
}

// mount mounts the volume. An error fails the test.
func (r *rig) mount(t *testing.T) volume.Mounted {
	t.Helper()
	m, err := r.Plugin.Mount(t.Context(), r.request)
	if err != nil {
		t.Fatalf("mount: %v", err)
	}
	return m
}

// takeDown removes the volume as the manager does when the pod is gone.
func (r *rig) takeDown(ctx context.Context) error {
	var err error
	if u, ok := r.Plugin.(volume.Unmounter); ok {
		err = u.Unmount(ctx, r.request.Place, nil)
	}
	for _, path := range []string{r.request.Dir, r.request.Meta} {
		if err == nil {
			err = teardown.Remove(ctx, filepath.Dir(path), filepath.Base(path))
		}
	}
	return err
}

// gone removes the volume twice, and checks that nothing of it is left.
func (r *rig) gone(t *testing.T) {
	t.Helper()
	for range 2 {
		if err := r.takeDown(t.Context()); err != nil {
			t.Fatalf("take it down: %v", err)
		}
	}
	if left := mounts(t, r.podDir()); len(left) > 0 {
		t.Errorf("still mounted: %q", left)
	}
	for _, path := range []string{r.request.Dir, r.request.Meta} {
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
		for _, e := range entries {
			t.Errorf("%s is left", filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
}

// holds checks that containers find the expected content.
func (r *rig) holds(t *testing.T, m volume.Mounted, want map[string]string) {
	t.Helper()
	if m.Path == "" {
		return
	}
	got, err := read(m.Path)
	if err != nil {
		t.Fatalf("read the volume: %v", err)
	}
	if diff := difference(want, got); diff != "" {
		t.Errorf("the volume's content (-want +got):\n%s", diff)
	}
}

// write writes to the volume as far as a container may, and returns the content that containers should find afterwards.
func (r *rig) write(t *testing.T, m volume.Mounted) map[string]string {
	t.Helper()
	want := map[string]string{}
	for k, v := range r.Want {
		want[k] = v
	}
	if r.Writable {
		want["written"] = fmt.Sprint("by pod ", r.request.UID)
		if err := os.WriteFile(filepath.Join(m.Path, "written"), []byte(want["written"]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return want
}
