package volume_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/emptydir"
	"github.com/deckhand-node/deckhand/internal/volume/hostpath"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

func newManager(t testing.TB) (m *volume.Manager, root string) {
	if t, ok := t.(*testing.T); ok {
		t.Cleanup(func() { goleak.VerifyNone(t) })
	}
	root = t.TempDir()
	hosts := filepath.Join(root, "node-hosts")
	must(t, os.WriteFile(hosts, []byte("127.0.0.1 localhost\n10.0.0.1 the-node"), 0o600))
	none := func(*v1.Pod) (int64, bool) { return 0, false }
	return volume.New(volume.Config{
		RootDir:       root,
		Plugins:       []volume.Plugin{emptydir.New(none), hostpath.Plugin{}},
		ClusterDomain: "cluster.local",
		HostsFile:     hosts,
	}, logr.Discard()), root
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func emptyDir(name string, medium v1.StorageMedium) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}}
}

func hostPath(name, path string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: path}}}
}

func newPod(volumes ...v1.Volume) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid-1"},
		Spec:       v1.PodSpec{Volumes: volumes, Containers: []v1.Container{{Name: "main", TerminationMessagePath: "/dev/termination-log"}}},
	}
}

func failure(t *testing.T, err error) *pod.Failure {
	t.Helper()
	var f *pod.Failure
	if !errors.As(err, &f) {
		t.Fatalf("got %v, want a *pod.Failure", err)
	}
	return f
}

func TestLayoutIsTheKubelets(t *testing.T) {
	m, root := newManager(t)
	old := unix.Umask(0o022)
	defer unix.Umask(old)
	p := newPod(emptyDir("data", ""), emptyDir("ram", v1.StorageMediumMemory), hostPath("node", "/etc"))
	for range 2 {
		must(t, m.Prepare(t.Context(), p))
		_, _, err := m.Mounts(p, "main", []string{"10.88.0.2"}, 26)
		must(t, err)
	}
	want := map[string]fs.FileMode{
		"pods":       fs.ModeDir | 0o750,
		"pods/uid-1": fs.ModeDir | 0o750,
		"pods/uid-1/volumes/kubernetes.io~empty-dir":      fs.ModeDir | 0o750,
		"pods/uid-1/volumes/kubernetes.io~empty-dir/data": fs.ModeDir | 0o777,
		"pods/uid-1/volumes/kubernetes.io~empty-dir/ram":  fs.ModeDir | fs.ModeSticky | 0o777,
		"pods/uid-1/containers/main":                      fs.ModeDir | 0o750,
		"pods/uid-1/containers/main/0000001a":             0o666,
		"pods/uid-1/etc-hosts":                            0o644,
	}
	for path, mode := range want {
		if st, err := os.Lstat(filepath.Join(root, path)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v (%v), want %v", path, st, err, mode)
		}
	}
	if got, err := m.Orphans(); err != nil || !slices.Equal(got, []types.UID{"uid-1"}) {
		t.Errorf("Orphans: %v, %v", got, err)
	}
	for range 2 {
		must(t, m.Clean(t.Context(), p.UID))
	}
	if entries, err := os.ReadDir(filepath.Join(root, "pods")); err != nil || len(entries) != 0 {
		t.Errorf("left: %v, %v", entries, err)
	}
	if _, err := os.Stat("/etc/hosts"); err != nil {
		t.Errorf("cleaning reached a hostPath: %v", err)
	}
}

func TestOrphansOnAFreshNode(t *testing.T) {
	m, _ := newManager(t)
	if got, err := m.Orphans(); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestWhatThisBuildLacksIsNamedAndMakesNothing(t *testing.T) {
	m, root := newManager(t)
	secret := v1.Volume{Name: "keys", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "s"}}}
	f := failure(t, m.Prepare(t.Context(), newPod(emptyDir("data", ""), secret)))
	if !f.Permanent || f.Reason != "FailedMount" || !strings.Contains(f.Message, `volume "keys" (secret)`) {
		t.Errorf("got %+v", f)
	}
	if _, err := os.Lstat(filepath.Join(root, "pods")); err == nil {
		t.Error("something was made for it")
	}
	f = failure(t, m.Prepare(t.Context(), newPod(emptyDir("huge", "HugePages"))))
	if !f.Permanent || !strings.Contains(f.Message, `volume "huge" (emptyDir): medium HugePages`) {
		t.Errorf("got %+v", f)
	}
	directory := v1.HostPathDirectory
	v := hostPath("node", "/does/not/exist")
	v.HostPath.Type = &directory
	if f := failure(t, m.Prepare(t.Context(), newPod(v))); f.Permanent {
		t.Errorf("what may appear later is permanent: %+v", f)
	}
}

func TestNamesThatAreNoPathElements(t *testing.T) {
	m, root := newManager(t)
	must(t, os.MkdirAll(filepath.Join(root, "pods", "other"), 0o750))
	for _, bad := range []string{"", ".", "..", "../x", "a/b", "/etc"} {
		p := newPod()
		p.UID = types.UID(bad)
		failure(t, m.Prepare(t.Context(), p))
		if _, _, err := m.Mounts(p, "main", nil, 0); err == nil {
			t.Errorf("Mounts took UID %q", bad)
		}
		if err := m.Clean(t.Context(), p.UID); err == nil {
			t.Errorf("Clean took UID %q", bad)
		}
		failure(t, m.Prepare(t.Context(), newPod(emptyDir(bad, ""))))
		p = newPod()
		p.Spec.Containers[0].Name = bad
		if _, _, err := m.Mounts(p, bad, nil, 0); err == nil {
			t.Errorf("Mounts took container %q", bad)
		}
	}
	if _, err := os.Stat(filepath.Join(root, "pods", "other")); err != nil {
		t.Error(err)
	}
}

func TestEndedContext(t *testing.T) {
	m, _ := newManager(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Prepare(ctx, newPod(emptyDir("data", ""))); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestKindNamesEveryVolumeAsManifestsDo(t *testing.T) {
	for want, v := range map[string]v1.Volume{
		"emptyDir":              emptyDir("x", ""),
		"hostPath":              hostPath("x", "/"),
		"configMap":             {VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}},
		"persistentVolumeClaim": {VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}},
		"":                      {},
	} {
		if got := volume.Kind(&v); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func BenchmarkPodOnDisk(b *testing.B) {
	m, _ := newManager(b)
	p := newPod(emptyDir("data", ""))
	for b.Loop() {
		must(b, m.Prepare(b.Context(), p))
		_, _, err := m.Mounts(p, "main", []string{"10.88.0.2"}, 0)
		must(b, err)
		must(b, m.Clean(b.Context(), p.UID))
	}
}

func TestEmptyDirOfAPod(t *testing.T) {
	m, _ := newManager(t)
	p := newPod(emptyDir("scratch", ""), hostPath("host", t.TempDir()))
	must(t, m.Prepare(t.Context(), p))
	dir, err := m.EmptyDir(p, "scratch")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "vars"), []byte("A='1'"), 0o600))
	for name, want := range map[string]string{"host": "of the kind hostPath", "none": `has no volume "none"`} {
		if dir, err := m.EmptyDir(p, name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v", name, dir, err)
		}
	}
	must(t, m.Clean(t.Context(), p.UID))
}
