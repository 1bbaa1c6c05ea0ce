package manager_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

// shared makes a directory that is a mount of the given kind (unix.MS_SHARED, ...).
func shared(t *testing.T, kind uintptr) string {
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { detach(dir) })
	must(t, unix.Mount("", dir, "", kind, ""))
	return dir
}

func describe(mounts []*runtimeapi.Mount) []string {
	var out []string
	for _, m := range mounts {
		from := m.HostPath
		if m.Image != nil {
			from = "image " + m.Image.Image + " " + m.ImageSubPath
		}
		mode := " rw "
		if m.Readonly {
			mode = " ro "
		}
		if m.RecursiveReadOnly {
			mode = " rro "
		}
		out = append(out, from+" -> "+m.ContainerPath+mode+m.Propagation.String())
	}
	return out
}

// A thing of the node that is gone holds up the containers that mount it, says so, and is never made.
func TestThingsOfTheNodeThatVanish(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	path := filepath.Join(t.TempDir(), "thing")
	must(t, os.Mkdir(path, 0o700))
	p := w.want(newPod(typedHostPath("node", path, v1.HostPathDirectory), emptyDir("data", "")))
	main := &p.Spec.Containers[0]
	other := main.DeepCopy()
	other.Name = "other"
	other.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data"}}
	p.Spec.Containers = append(p.Spec.Containers, *other)
	must(t, m.Prepare(t.Context(), p, w))
	for _, vm := range []v1.VolumeMount{{Name: "node", MountPath: "/node"}, {Name: "node", MountPath: "/node", SubPath: "a"}} {
		main := &p.Spec.Containers[0]
		main.VolumeMounts = []v1.VolumeMount{vm}
		mounts := func(container string) error {
			_, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: container})
			return err
		}
		must(t, mounts("main"))
		must(t, m.Recheck(t.Context(), p, main))
		must(t, os.RemoveAll(path))
		for what, err := range map[string]error{"created": mounts("main"), "started": m.Recheck(t.Context(), p, main)} {
			f := failure(t, err)
			if want := `container "main": volume "node": hostPath type check failed: ` + path + " does not exist"; f.Reason != pod.ReasonCreateContainerConfigError || f.Permanent || !strings.HasPrefix(f.Message, want) {
				t.Errorf("%s: got %+v, want %s", what, f, want)
			}
		}
		must(t, mounts("other"))
		must(t, m.Recheck(t.Context(), p, &p.Spec.Containers[2]))
		if _, err := os.Lstat(path); err == nil {
			t.Error("it was made")
		}
		must(t, os.Mkdir(path, 0o700))
		must(t, mounts("main"))
		must(t, m.Recheck(t.Context(), p, main))
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// images makes image volumes.
type images struct{ *stand }

func (images) Supports(s volume.Spec) bool { return s.Volume.Image != nil }

func (images) Mount(context.Context, volume.Request) (volume.Mounted, error) {
	return volume.Mounted{ReadOnly: true, Unpropagated: true, Image: &runtimeapi.ImageSpec{Image: "sha256:1"}}, nil
}

func TestMountsOfAContainer(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.Plugins = append([]volume.Plugin{images{newStand()}}, c.Plugins...)
	m, _ := w.start(c)
	node := shared(t, unix.MS_SHARED)
	w.setConfigMap("web", map[string]string{"a": "1"})
	p := w.want(newPod(emptyDir("data", ""), hostPath("node", node), configMap("conf", "web"),
		v1.Volume{Name: "files", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "example.com/files"}}}))
	main := &p.Spec.Containers[0]
	main.SecurityContext = &v1.SecurityContext{Privileged: ptr.To(true)}
	main.VolumeMounts = []v1.VolumeMount{
		{Name: "data", MountPath: "/data", ReadOnly: true},
		{Name: "node", MountPath: "srv/", MountPropagation: ptr.To(v1.MountPropagationHostToContainer)},
		{Name: "node", MountPath: "/both", MountPropagation: ptr.To(v1.MountPropagationBidirectional)},
		{Name: "conf", MountPath: "/conf", MountPropagation: ptr.To(v1.MountPropagationNone)},
		{Name: "data", MountPath: "/part", SubPath: "a/b"},
		{Name: "data", MountPath: "/expr", SubPathExpr: "$(POD)/$$(X)", ReadOnly: true},
		{Name: "files", MountPath: "/files", SubPath: "etc"},
		{Name: "data", MountPath: "/if", ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyIfPossible)},
		{Name: "data", MountPath: "/never", ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyDisabled)},
	}
	must(t, m.Prepare(t.Context(), p, w))
	must(t, m.Images(t.Context(), p, main))
	dir := filepath.Join(w.root, "pods", "uid-1")
	data, err := m.EmptyDir(p, "data")
	must(t, err)
	r := manager.MountRequest{
		Pod: p, Container: "main", PodIPs: []string{"10.88.0.2"}, Attempt: 3,
		Env: []*runtimeapi.KeyValue{{Key: "POD", Value: []byte("shadowed")}, {Key: "POD", Value: []byte("web")}}, RecursiveReadOnly: true,
	}
	mounts, message, err := m.Mounts(t.Context(), r)
	must(t, err)
	want := []string{
		dir + "/volumes/kubernetes.io~empty-dir/data -> /data ro PROPAGATION_PRIVATE",
		node + " -> /srv rw PROPAGATION_HOST_TO_CONTAINER",
		node + " -> /both rw PROPAGATION_BIDIRECTIONAL",
		dir + "/volumes/kubernetes.io~configmap/conf -> /conf ro PROPAGATION_PRIVATE",
		dir + "/volume-subpaths/data/main/4 -> /part rw PROPAGATION_PRIVATE",
		dir + "/volume-subpaths/data/main/5 -> /expr ro PROPAGATION_PRIVATE",
		"image sha256:1 etc -> /files ro PROPAGATION_PRIVATE",
		dir + "/volumes/kubernetes.io~empty-dir/data -> /if rro PROPAGATION_PRIVATE",
		dir + "/volumes/kubernetes.io~empty-dir/data -> /never ro PROPAGATION_PRIVATE",
		dir + "/etc-hosts -> /etc/hosts rw PROPAGATION_PRIVATE",
		dir + "/containers/main/00000003 -> /dev/termination-log rw PROPAGATION_PRIVATE",
	}
	if diff := cmp.Diff(want, describe(mounts)); diff != "" {
		t.Errorf("mounts (-want +got):\n%s", diff)
	}
	if message != dir+"/containers/main/00000003" {
		t.Errorf("termination message file %s", message)
	}
	must(t, os.WriteFile(filepath.Join(data, "web/$(X)/f"), []byte("x"), 0o600))
	if !holds(filepath.Join(dir, "volume-subpaths/data/main/5/f"), "x") {
		t.Error("the part is another")
	}
	r.RecursiveReadOnly = false
	mounts, _, err = m.Mounts(t.Context(), r)
	must(t, err)
	if mounts[7].RecursiveReadOnly || !mounts[7].Readonly {
		t.Errorf("IfPossible where it isn't: %v", mounts[7])
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

func TestMountsThatAreRefused(t *testing.T) {
	private, slave := shared(t, unix.MS_PRIVATE), shared(t, unix.MS_SHARED)
	must(t, unix.Mount(slave, slave, "", unix.MS_BIND, ""))
	t.Cleanup(func() { detach(slave) })
	must(t, unix.Mount("", slave, "", unix.MS_SLAVE, ""))
	up, down := ptr.To(v1.MountPropagationBidirectional), ptr.To(v1.MountPropagationHostToContainer)
	privileged := &v1.SecurityContext{Privileged: ptr.To(true)}
	for name, c := range map[string]struct {
		mount     v1.VolumeMount
		security  *v1.SecurityContext
		want      string
		permanent bool
	}{
		"missing volume":              {v1.VolumeMount{Name: "other"}, nil, `volume "other" at /data: the pod has no such volume`, true},
		"unknown propagation":         {v1.VolumeMount{Name: "data", MountPropagation: ptr.To(v1.MountPropagationMode("Up"))}, nil, `unknown mountPropagation "Up"`, true},
		"Bidirectional, unprivileged": {v1.VolumeMount{Name: "node", MountPropagation: up}, nil, "privileged containers only", true},
		"Bidirectional of an image":   {v1.VolumeMount{Name: "files", MountPropagation: up}, privileged, "kind image never reach the node", true},
		"HostToContainer of a private mount": {v1.VolumeMount{Name: "node", MountPropagation: down}, nil,
			"is on, " + private + ", is private: run `mount --make-rshared " + private + "`", false},
		"Bidirectional of a slave": {v1.VolumeMount{Name: "slave", MountPropagation: up}, privileged, slave + ", is a slave", false},
		"recursiveReadOnly without support": {v1.VolumeMount{Name: "data", ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyEnabled)}, nil,
			"recursiveReadOnly Enabled isn't supported by the pod's runtime", true},
		"recursiveReadOnly without readOnly": {v1.VolumeMount{Name: "data", RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyIfPossible)}, nil, "needs readOnly", true},
		"recursiveReadOnly with propagation": {
			v1.VolumeMount{Name: "data", ReadOnly: true, MountPropagation: down, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyIfPossible)}, nil, "needs mountPropagation None", true,
		},
		"unknown recursiveReadOnly": {v1.VolumeMount{Name: "data", ReadOnly: true, RecursiveReadOnly: ptr.To(v1.RecursiveReadOnlyMode("Yes"))}, nil, `"Yes"`, true},
		"undefined variable":        {v1.VolumeMount{Name: "data", SubPathExpr: "a/$(NONE)"}, nil, "environment variable NONE", true},
		"empty expression":          {v1.VolumeMount{Name: "data", SubPathExpr: "$(EMPTY)"}, nil, "is empty", true},
		"expression that leads out": {v1.VolumeMount{Name: "data", SubPathExpr: "$(UP)/x"}, nil, `without ".."`, true},
		"absolute expression":       {v1.VolumeMount{Name: "data", SubPathExpr: "$(ROOT)"}, nil, "not absolute", true},
		"subPath that leads out":    {v1.VolumeMount{Name: "data", SubPath: "a/../../x"}, nil, `without ".."`, true},
		"link that leads out": {v1.VolumeMount{Name: "data", SubPath: "out/x"}, nil,
			`container "main": volume "data" at /data: subPath "out/x": it leads out of the volume: links have to be relative and stay inside the volume`, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			config := w.config()
			config.Plugins = append([]volume.Plugin{images{newStand()}}, config.Plugins...)
			m, _ := w.start(config)
			p := w.want(newPod(emptyDir("data", ""), hostPath("node", private), hostPath("slave", slave), v1.Volume{Name: "files", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{}}}))
			c.mount.MountPath = "/data"
			p.Spec.Containers[0].VolumeMounts, p.Spec.Containers[0].SecurityContext = []v1.VolumeMount{c.mount}, c.security
			must(t, m.Prepare(t.Context(), p, w))
			must(t, m.Images(t.Context(), p, &p.Spec.Containers[0])) // Prepare doesn't wait for them
			data, err := m.EmptyDir(p, "data")
			must(t, err)
			must(t, os.Symlink("/", filepath.Join(data, "out")))
			_, _, err = m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main", Env: []*runtimeapi.KeyValue{
				{Key: "EMPTY"}, {Key: "UP", Value: []byte("..")}, {Key: "ROOT", Value: []byte("/etc")},
			}})
			f := failure(t, err)
			if f.Permanent != c.permanent || f.Reason != "CreateContainerConfigError" || !strings.Contains(f.Message, c.want) || !strings.HasPrefix(f.Message, `container "main": `) {
				t.Errorf("got %+v", f)
			}
			must(t, m.Clean(t.Context(), p.UID))
		})
	}
}

// A slave gets what is mounted on the node later.
func TestHostToContainerOfASlave(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	slave := shared(t, unix.MS_SHARED)
	must(t, unix.Mount(slave, slave, "", unix.MS_BIND, ""))
	t.Cleanup(func() { detach(slave) })
	must(t, unix.Mount("", slave, "", unix.MS_SLAVE, ""))
	link := filepath.Join(t.TempDir(), "link")
	must(t, os.Symlink(slave, link))
	p := w.want(newPod(hostPath("node", link)))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "node", MountPath: "/n", MountPropagation: ptr.To(v1.MountPropagationHostToContainer)}}
	must(t, m.Prepare(t.Context(), p, w))
	if _, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main"}); err != nil {
		t.Error(err)
	}
}

// A container whose volumes aren't mounted waits until its pod has been prepared: to ask for mounts mounts nothing.
func TestMountsPrepareNothing(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	p := w.want(newPod(emptyDir("data", "")))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/d"}}
	_, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main"})
	if f := failure(t, err); f.Message != `container "main": volume "data" isn't mounted` || f.Permanent || len(m.Instances()) != 0 {
		t.Errorf("got %+v, mounted %v", f, m.Instances())
	}
	must(t, m.Prepare(t.Context(), p, w))
	mounts, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main"})
	if err != nil || len(mounts) != 2 {
		t.Errorf("%v, %v", mounts, err)
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

func TestNoManagedHostsFile(t *testing.T) {
	for name, c := range map[string]struct {
		mounts []v1.VolumeMount
		ips    []string
	}{
		"the container has its own": {[]v1.VolumeMount{{Name: "node", MountPath: "/etc/hosts"}}, []string{"10.88.0.2"}},
		"the pod has no address":    {nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			m, _ := w.start(w.config())
			p := w.want(newPod(hostPath("node", "/srv/hosts")))
			p.Spec.Containers[0].VolumeMounts = c.mounts
			must(t, m.Prepare(t.Context(), p, w))
			_, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main", PodIPs: c.ips})
			must(t, err)
			if _, err := os.Lstat(filepath.Join(w.root, "pods", "uid-1", "etc-hosts")); err == nil {
				t.Error("a hosts file was made")
			}
		})
	}
}

func TestWithoutATerminationMessage(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	p := w.want(newPod())
	p.Spec.Containers[0].TerminationMessagePath = ""
	must(t, m.Prepare(t.Context(), p, w))
	if mounts, message, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main"}); err != nil || message != "" || len(mounts) != 0 {
		t.Errorf("%v, %q, %v", mounts, message, err)
	}
}

func TestBlockVolumesAreRefused(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	c := &v1.Container{Name: "main"}
	if volumes, err := m.BlockVolumes(newPod(), c); err != nil || len(volumes) > 0 {
		t.Errorf("none asked for: %v, %v", volumes, err)
	}
	c.VolumeDevices = []v1.VolumeDevice{{Name: "data"}}
	_, err := m.BlockVolumes(newPod(), c)
	if f := failure(t, err); !strings.Contains(f.Message, `volumeDevices (volume "data")`) || !f.Permanent {
		t.Errorf("got %+v", f)
	}
}

func TestEmptyDirOfAPod(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	p := w.want(newPod(emptyDir("scratch", ""), hostPath("host", t.TempDir())))
	if dir, err := m.EmptyDir(p, "scratch"); err == nil {
		t.Errorf("before it is mounted: %s", dir)
	}
	must(t, m.Prepare(t.Context(), p, w))
	dir, err := m.EmptyDir(p, "scratch")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "vars"), []byte("A='1'"), 0o600))
	for name, want := range map[string]string{"host": "of the kind hostPath", "none": `has no volume "none"`} {
		if dir, err := m.EmptyDir(p, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", name, dir, err)
		}
	}
}

func BenchmarkPodOnDisk(b *testing.B) {
	w := newWorld(b)
	m, _ := w.start(w.config())
	p := w.want(newPod(emptyDir("data", "")))
	for b.Loop() {
		must(b, m.Prepare(b.Context(), p, w))
		_, _, err := m.Mounts(b.Context(), manager.MountRequest{Pod: p, Container: "main", PodIPs: []string{"10.88.0.2"}})
		must(b, err)
		must(b, m.Clean(b.Context(), p.UID))
	}
}
