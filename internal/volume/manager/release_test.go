package manager_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/killtest"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

func TestReleaseLeavesThePodsOtherFiles(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	p := w.want(newPod(emptyDir("data", ""), emptyDir("ram", v1.StorageMediumMemory)))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "ram", MountPath: "/ram", SubPath: "part"}}
	must(t, m.Prepare(t.Context(), p, w))
	_, message, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main", PodIPs: []string{"10.88.0.2"}})
	must(t, err)
	must(t, os.WriteFile(message, []byte("last words"), 0o600))
	for range 2 {
		must(t, m.Release(t.Context(), p.UID))
	}
	if left := mountTable(t, w.root); len(left) > 0 {
		t.Errorf("still mounted: %v", left)
	}
	want := []string{"", "/containers", "/containers/main", "/containers/main/00000000", "/etc-hosts"}
	if diff := cmp.Diff(want, directories(t, filepath.Join(w.root, "pods", "uid-1"))); diff != "" {
		t.Errorf("left on disk (-want +got):\n%s", diff)
	}
	if len(w.forgotten) > 0 {
		t.Error("the claims of a pod that stays known were forgotten")
	}
	if desired, actual := m.Totals(); len(desired)+len(actual) > 0 {
		t.Errorf("Totals: %v, %v", desired, actual)
	}
	if _, err := m.EmptyDir(p, "data"); err == nil {
		t.Error("the volume counts as mounted")
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

func TestPartsGoBeforeTheirVolume(t *testing.T) {
	w, s := newWorld(t), newStand()
	c := w.config()
	c.Plugins = append([]volume.Plugin{s}, c.Plugins...)
	m, _ := w.start(c)
	p := w.want(newPod(hostPath("data", "stand:")))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/d", SubPath: "part"}}
	must(t, m.Prepare(t.Context(), p, w))
	_, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main"})
	must(t, err)
	must(t, m.Clean(t.Context(), p.UID)) // which the plugin would refuse
	w.clean()
}

// What a volume holds stays as long as a part of it is in use, also where the plugin has nothing to unmount.
func TestAVolumeStaysWhileAPartOfItIsInUse(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	p := w.want(newPod(emptyDir("data", "")))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/d", SubPath: "part"}}
	must(t, m.Prepare(t.Context(), p, w))
	mounts, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main"})
	must(t, err)
	file, err := os.Create(filepath.Join(mounts[0].HostPath, "open"))
	must(t, err)
	defer file.Close()
	if err := m.Clean(t.Context(), p.UID); err == nil || !strings.Contains(err.Error(), "a process still uses it") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(w.root, "pods/uid-1/volumes/kubernetes.io~empty-dir/data/part/open")); err != nil {
		t.Errorf("what the volume holds: %v", err)
	}
	must(t, file.Close())
	// The kernel may take a moment to let go of the mount.
	eventually(t, "it is removed", func() bool { return m.Clean(t.Context(), p.UID) == nil })
	w.clean()
}

// A claim that is another PersistentVolume by now.
func TestAClaimThatIsBoundAnew(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	w.bind("store", t.TempDir())
	p := w.want(newPod(claim("db", "store")))
	must(t, m.Prepare(t.Context(), p, w))
	w.bind("store", t.TempDir())
	w.bound["store"].pv.Name = "pv-next"
	must(t, m.Prepare(t.Context(), p, w))
	if got := m.Instances(); len(got) != 1 || filepath.Base(got[0].Dir) != "pv-next" {
		t.Errorf("mounted: %v", got)
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// What is still mounted, since a process uses it, is not deleted.
func TestWhatIsInUseStays(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	p := w.want(newPod(emptyDir("ram", v1.StorageMediumMemory), emptyDir("data", "")))
	must(t, m.Prepare(t.Context(), p, w))
	dir, err := m.EmptyDir(p, "ram")
	must(t, err)
	file, err := os.Create(filepath.Join(dir, "open"))
	must(t, err)
	defer file.Close()
	for range 2 {
		if err := m.Clean(t.Context(), p.UID); err == nil || !strings.Contains(err.Error(), `volume "ram"`) || !strings.Contains(err.Error(), "a process still uses it") {
			t.Fatalf("got %v", err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "open")); err != nil {
		t.Errorf("what is in use: %v", err)
	}
	if desired, actual := m.Totals(); len(desired) != 0 || len(actual) != 1 || actual["kubernetes.io/empty-dir"] != 1 {
		t.Errorf("Totals: %v, %v", desired, actual)
	}
	if len(m.Instances()) != 0 || !m.Holds(p.UID) {
		t.Errorf("instances %v, holds %v: what is in use is still there, and isn't mounted for containers", m.Instances(), m.Holds(p.UID))
	}
	if _, err := os.Stat(filepath.Join(w.root, "pods/uid-1/volumes/kubernetes.io~empty-dir/data")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the volume that nobody uses: %v", err)
	}
	must(t, file.Close())
	// The kernel may take a moment to let go of the mount.
	eventually(t, "it is unmounted", func() bool { return m.Clean(t.Context(), p.UID) == nil })
	if m.Holds(p.UID) {
		t.Error("it holds volumes that are gone")
	}
	w.clean()
}

// Links and mounts that pods leave lead nobody astray.
func TestCleaningUpNeverLeavesThePodsDir(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	victim := t.TempDir()
	must(t, os.WriteFile(filepath.Join(victim, "precious"), nil, 0o600))
	p := w.want(newPod(emptyDir("data", ""), hostPath("node", victim)))
	must(t, m.Prepare(t.Context(), p, w))
	dir, err := m.EmptyDir(p, "data")
	must(t, err)
	must(t, os.Symlink(victim, filepath.Join(dir, "link")))
	// As a privileged container could.
	must(t, os.Symlink(victim, filepath.Join(w.root, "pods/uid-1/volumes/kubernetes.io~empty-dir/astray")))
	must(t, os.Symlink(victim, filepath.Join(w.root, "pods/uid-1/volumes/linked~plugin")))
	must(t, os.Symlink(victim, filepath.Join(w.root, "pods/uid-1/volume-subpaths")))
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
	if _, err := os.Stat(filepath.Join(victim, "precious")); err != nil {
		t.Error(err)
	}
}

func TestTheNextAgentRemountsNothing(t *testing.T) {
	w := newWorld(t)
	w.bind("store", t.TempDir())
	w.setConfigMap("web", map[string]string{"a": "1"})
	w.setSecret("keys", map[string]string{"k": "v"})
	p := w.want(newPod(emptyDir("ram", v1.StorageMediumMemory), secretVolume("keys", "keys"), claim("db", "store"), configMap("conf", "web")))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "db", MountPath: "/db", SubPath: "part"}}
	m, stop := w.start(w.config())
	must(t, m.Prepare(t.Context(), p, w))
	mounts, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main"})
	must(t, err)
	w.setRunning(p.UID, true)
	before := mountTable(t, w.root)
	if len(before) != 4 {
		t.Fatalf("mounted: %v", before)
	}
	stop()

	m, stop = w.start(w.config())
	must(t, m.Prepare(t.Context(), p, w))
	again, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main"})
	must(t, err)
	if after := mountTable(t, w.root); !equal(before, after) {
		t.Errorf("mounts %v became %v", before, after)
	}
	if diff := cmp.Diff(describe(mounts), describe(again)); diff != "" {
		t.Errorf("the container's mounts (-before +after):\n%s", diff)
	}
	// Objects that went meanwhile take nothing from a pod that runs, but it is told.
	stop()
	w.setConfigMap("web", nil)
	m, stop = w.start(w.config())
	must(t, m.Prepare(t.Context(), p, w))
	eventually(t, "it is told", func() bool {
		return slices.ContainsFunc(w.told(), func(s string) bool {
			return strings.Contains(s, `FailedMount: MountVolume.SetUp failed for volume "conf" : `)
		})
	})
	if !holds(contentOf(w, p.UID, "kubernetes.io~configmap", "conf", "a"), "1") {
		t.Error("the file is gone")
	}
	// And what came while nobody looked is seen.
	stop()
	w.setConfigMap("web", map[string]string{"a": "2"})
	m, stop = w.start(w.config())
	must(t, m.Prepare(t.Context(), p, w))
	if !holds(contentOf(w, p.UID, "kubernetes.io~configmap", "conf", "a"), "2") {
		t.Error("the file is old")
	}
	// The one after that knows nothing of the pod, and takes it down.
	stop()
	m, _ = w.start(w.config())
	if got, err := m.Orphans(); err != nil || !slices.Equal(got, []types.UID{"uid-1"}) {
		t.Errorf("Orphans: %v, %v", got, err)
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

func TestVolumesThatAPodHasNoMoreAreTakenDown(t *testing.T) {
	w, s := newWorld(t), newStand()
	c := w.config()
	c.Plugins = append([]volume.Plugin{s}, c.Plugins...)
	m, stop := w.start(c)
	p := w.want(newPod(emptyDir("data", ""), hostPath("old", "stand:")))
	must(t, m.Prepare(t.Context(), p, w))
	old := filepath.Join(w.root, "pods/uid-1/volumes/test.example~stand/old")
	stop()

	less := newPod(emptyDir("data", ""))
	w.setRunning(p.UID, true)
	m, stop = w.start(c)
	must(t, m.Prepare(t.Context(), less, w))
	if _, err := os.Stat(old); err != nil {
		t.Errorf("containers may use it: %v", err)
	}
	stop()
	w.setRunning(p.UID, false)
	m, _ = w.start(c)
	missing := newPod(emptyDir("data", ""), claim("db", "store")) // it isn't known where that one is
	failure(t, m.Prepare(t.Context(), missing, w))
	if _, err := os.Stat(old); err != nil {
		t.Errorf("it might be the claim's: %v", err)
	}
	must(t, m.Prepare(t.Context(), less, w))
	if _, err := os.Stat(old); !errors.Is(err, fs.ErrNotExist) || s.count("unmount old") != 1 {
		t.Errorf("it is left: %v, %v", err, s.calls)
	}
	if _, err := m.EmptyDir(less, "data"); err != nil {
		t.Error(err)
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// Two volumes of a pod may be made from one claim.
func TestOneClaimTwice(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	share := t.TempDir()
	w.bind("store", share)
	read := claim("read", "store")
	read.PersistentVolumeClaim.ReadOnly = true
	p := w.want(newPod(claim("write", "store"), read))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "write", MountPath: "/w"}}
	must(t, m.Prepare(t.Context(), p, w))
	if n := len(m.Instances()); n != 2 {
		t.Errorf("%d instances", n)
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

func sixVolumes(w *world, name string, uid types.UID) *v1.Pod {
	both := v1.Volume{Name: "both", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "web"}}},
		{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "keys"}}},
	}}}}
	p := namedPod(name, uid, emptyDir("data", ""), emptyDir("ram", v1.StorageMediumMemory), configMap("conf", "web"), secretVolume("keys", "keys"), both, claim("db", "store"))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "data", MountPath: "/data", SubPath: "a/b"}, {Name: "db", MountPath: "/db", SubPath: "part"}, {Name: "conf", MountPath: "/conf"},
	}
	return p
}

func TestAHundredPodsLeaveNothing(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	w.bind("store", t.TempDir())
	w.setConfigMap("web", map[string]string{"a": "1"})
	w.setSecret("keys", map[string]string{"k": "v"})
	pods, share := 100, w.bound["store"].pv.Spec.Local.Path
	if testing.Short() {
		pods = 20
	}
	must(t, os.MkdirAll(filepath.Join(w.root, "pods"), 0o750))
	mountsBefore, dirsBefore := mountTable(t, "/"), directories(t, w.root)
	each := func(do func(p *v1.Pod) error) {
		t.Helper()
		var wg sync.WaitGroup
		for n := range pods {
			wg.Go(func() {
				p := sixVolumes(w, fmt.Sprint("p", n), types.UID(fmt.Sprint("uid-", n)))
				if err := do(p); err != nil {
					t.Errorf("%s: %v", p.Name, err)
				}
			})
		}
		wg.Wait()
	}
	each(func(p *v1.Pod) error {
		w.want(p)
		if err := m.Prepare(t.Context(), p, w); err != nil {
			return err
		}
		_, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main", PodIPs: []string{"10.88.0.2"}})
		return err
	})
	if n := len(m.Instances()); n != 6*pods {
		t.Errorf("%d volumes are mounted", n)
	}
	w.setConfigMap("web", map[string]string{"a": "2"}) // some are refreshed while they go
	each(func(p *v1.Pod) error { return m.Release(t.Context(), p.UID) })
	each(func(p *v1.Pod) error { return m.Clean(t.Context(), p.UID) })
	if diff := cmp.Diff(mountsBefore, mountTable(t, "/")); diff != "" {
		t.Errorf("mount table (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(dirsBefore, directories(t, w.root)); diff != "" {
		t.Errorf("directories (-before +after):\n%s", diff)
	}
	if _, err := os.Stat(filepath.Join(share, "part")); err != nil {
		t.Errorf("the claim's files: %v", err)
	}
}

// An agent that is killed at any moment leaves nothing that the next one doesn't mend or remove.
func TestKilledAtEveryStep(t *testing.T) {
	share := t.TempDir()
	setUp := func(t testing.TB, dir string) (*world, *manager.Manager) {
		w := bareWorld(t, dir)
		w.bind("store", share, v1.ReadWriteOncePod)
		w.setConfigMap("web", map[string]string{"a": "1"})
		w.setSecret("keys", map[string]string{"k": "v"})
		return w, manager.New(w.config(), logr.Discard())
	}
	up := func(w *world, m *manager.Manager, t testing.TB) error {
		p := w.want(sixVolumes(w, "web", "uid-1"))
		if err := m.Prepare(t.Context(), p, w); err != nil {
			return err
		}
		_, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main", PodIPs: []string{"10.88.0.2"}})
		return err
	}
	killtest.Run(t, killtest.Case{
		Child: func(dir string) error {
			w, m := setUp(t, dir)
			return errors.Join(up(w, m, t), m.Release(t.Context(), "uid-1"), m.Clean(t.Context(), "uid-1"))
		},
		Check: func(t *testing.T, dir string, n int) {
			w, m := setUp(t, dir)
			if n%2 == 0 { // it is wanted still, or not any more
				must(t, up(w, m, t))
				if !holds(contentOf(w, "uid-1", "kubernetes.io~configmap", "conf", "a"), "1") || !holds(contentOf(w, "uid-1", "kubernetes.io~secret", "keys", "k"), "v") {
					t.Error("the files aren't there")
				}
				if got := mountTable(t, filepath.Join(dir, "pods")); len(got) != 6 { // ram, keys, both, db, two parts
					t.Errorf("mounted: %v", got)
				}
			}
			must(t, m.Clean(t.Context(), "uid-1"))
			w.clean()
		},
	})
}
