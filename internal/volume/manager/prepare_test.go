package manager_test

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/filetree"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

func TestLayoutIsTheKubelets(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	old := unix.Umask(0o022)
	defer unix.Umask(old)
	share := t.TempDir()
	w.bind("store", share)
	w.setConfigMap("web", map[string]string{"a": "1"})
	w.setSecret("keys", map[string]string{"k": "v"})
	p := w.want(newPod(emptyDir("data", ""), emptyDir("ram", v1.StorageMediumMemory), hostPath("node", "/etc"), configMap("conf", "web"), secretVolume("keys", "keys"), claim("db", "store")))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/data", SubPath: "part"}}
	for range 2 {
		must(t, m.Prepare(t.Context(), p, w))
		_, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main", PodIPs: []string{"10.88.0.2"}, Attempt: 26})
		must(t, err)
	}
	for path, mode := range map[string]fs.FileMode{
		"pods":       fs.ModeDir | 0o750,
		"pods/uid-1": fs.ModeDir | 0o750,
		"pods/uid-1/volumes/kubernetes.io~empty-dir":      fs.ModeDir | 0o750,
		"pods/uid-1/volumes/kubernetes.io~empty-dir/data": fs.ModeDir | 0o777,
		"pods/uid-1/volumes/kubernetes.io~empty-dir/ram":  fs.ModeDir | fs.ModeSticky | 0o777,
		"pods/uid-1/volumes/kubernetes.io~configmap/conf": fs.ModeDir | 0o777,
		"pods/uid-1/volumes/kubernetes.io~secret/keys":    fs.ModeDir | fs.ModeSticky | 0o777,
		"pods/uid-1/volume-subpaths/data/main/0":          fs.ModeDir | 0o777,
		"pods/uid-1/containers/main":                      fs.ModeDir | 0o750,
		"pods/uid-1/containers/main/0000001a":             0o666,
		"pods/uid-1/etc-hosts":                            0o644,
	} {
		if st, err := os.Lstat(filepath.Join(w.root, path)); err != nil || st.Mode() != mode {
			t.Errorf("%s: %v (%v), want %v", path, st, err, mode)
		}
	}
	if _, err := os.Lstat(filepath.Join(w.root, "pods/uid-1/volumes/kubernetes.io~local-volume/pv-store")); err != nil {
		t.Error(err)
	}
	if got, err := m.Orphans(); err != nil || !slices.Equal(got, []types.UID{"uid-1"}) {
		t.Errorf("Orphans: %v, %v", got, err)
	}
	var names []string
	for _, i := range m.Instances() {
		names = append(names, i.Plugin+" "+i.Spec.Volume.Name)
	}
	if want := []string{"kubernetes.io/configmap conf", "kubernetes.io/empty-dir data", "kubernetes.io/local-volume db", "kubernetes.io/secret keys", "kubernetes.io/host-path node", "kubernetes.io/empty-dir ram"}; !slices.Equal(names, want) {
		t.Errorf("Instances: %q", names)
	}
	if desired, actual := m.Totals(); desired["kubernetes.io/empty-dir"] != 2 || actual["kubernetes.io/empty-dir"] != 2 || actual["kubernetes.io/local-volume"] != 1 {
		t.Errorf("Totals: %v, %v", desired, actual)
	}
	must(t, os.WriteFile(filepath.Join(share, "kept"), nil, 0o600))
	for range 2 {
		must(t, m.Clean(t.Context(), p.UID))
	}
	w.clean()
	if _, err := os.Stat(filepath.Join(share, "kept")); err != nil {
		t.Errorf("cleaning reached the claim's volume: %v", err)
	}
	if len(m.Instances()) != 0 {
		t.Errorf("Instances: %v", m.Instances())
	}
	if desired, actual := m.Totals(); len(desired)+len(actual) != 0 {
		t.Errorf("Totals: %v, %v", desired, actual)
	}
	if !slices.Equal(w.forgotten, []types.UID{"uid-1", "uid-1"}) {
		t.Errorf("claims that were forgotten: %v", w.forgotten)
	}
}

func TestWhatIsMountedStaysAsItIs(t *testing.T) {
	w, s := newWorld(t), newStand()
	c := w.config()
	c.Plugins = append([]volume.Plugin{s}, c.Plugins...)
	m, _ := w.start(c)
	p := w.want(newPod(hostPath("data", "stand:"), emptyDir("ram", v1.StorageMediumMemory)))
	must(t, m.Prepare(t.Context(), p, w))
	before := mountTable(t, w.root)
	must(t, m.Prepare(t.Context(), p, w))
	if after := mountTable(t, w.root); len(before) != 2 || !equal(before, after) {
		t.Errorf("mounts %v became %v", before, after)
	}
	if n := s.count("mount data"); n != 1 {
		t.Errorf("mounted %d times", n)
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
	if s.count("unmount data") != 1 {
		t.Errorf("calls: %v", s.calls)
	}
	if want := "test.example/stand volume_mount false"; !slices.Contains(w.metered, want) {
		t.Errorf("not counted: %v", w.metered)
	}
	for _, want := range []string{"kubernetes.io/empty-dir volume_unmount false", "kubernetes.io/empty-dir volume_unmount completed"} {
		if !slices.Contains(w.metered, want) {
			t.Errorf("%s isn't counted: %v", want, w.metered)
		}
	}
	if slices.Contains(w.metered, "reconstructed false") {
		t.Errorf("a new pod's volumes count as reconstructed: %v", w.metered)
	}
}

// replaced is a stand for the disks of a cloud that a CSI driver has replaced.
type replaced struct{ *stand }

func (replaced) Supports(s volume.Spec) bool { return s.Migrated }

// driverObjects is a world in which every driver has an object.
type driverObjects struct{ *world }

func (driverObjects) Admitted() bool { return true }

func (driverObjects) CSIDriver(context.Context, string) (*storagev1.CSIDriver, error) {
	return &storagev1.CSIDriver{}, nil
}

// TestMigratedIsCounted: what is done with a volume of a kind that a CSI driver has replaced is counted as such.
func TestMigratedIsCounted(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.Plugins = []volume.Plugin{replaced{newStand()}}
	m, _ := w.start(c)
	p := w.want(newPod(v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{
		GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}}))
	must(t, m.Prepare(t.Context(), p, driverObjects{w}))
	must(t, m.Clean(t.Context(), p.UID))
	for _, want := range []string{"volume_mount migrated false", "volume_unmount migrated false"} {
		if !slices.Contains(w.metered, "test.example/stand "+want) {
			t.Errorf("%s isn't counted: %v", want, w.metered)
		}
	}
}

func equal(a, b map[int]string) bool {
	if len(a) != len(b) {
		return false
	}
	for id, point := range a {
		if b[id] != point {
			return false
		}
	}
	return true
}

func TestOrphansOnAFreshNode(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	if got, err := m.Orphans(); err != nil || len(got) != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// checker refuses volumes by their manifest alone.
type checker struct{ *stand }

func (checker) Check(*v1.Pod, volume.Spec) error {
	return errors.Join(errors.New("never"), volume.ErrUnsupported)
}

func TestWhatIsUnsupportedIsNamedAndMakesNothing(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.Plugins = append([]volume.Plugin{checker{newStand()}}, c.Plugins[:len(c.Plugins)-1]...)
	m, _ := w.start(c)
	block := v1.PersistentVolumeBlock
	w.bind("disk", "/dev/null")
	w.bound["disk"].pv.Spec.VolumeMode = &block
	for name, c := range map[string]struct {
		volume v1.Volume
		want   string
	}{
		"no plugin":                {v1.Volume{Name: "share", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}}, `MountVolume.SetUp failed for volume "share" : volumes of the kind nfs are not supported`},
		"a plugin that refuses it": {hostPath("node", "stand:"), `MountVolume.SetUp failed for volume "node" : never`},
		"a block device":           {claim("disk", "disk"), `MapVolume.SetUp failed for volume "pv-disk" : PersistentVolume pv-disk is a block device`},
	} {
		t.Run(name, func(t *testing.T) {
			f := failure(t, m.Prepare(t.Context(), newPod(emptyDir("data", ""), c.volume), w))
			if !f.Permanent || !strings.Contains(f.Message, c.want) {
				t.Errorf("got %+v", f)
			}
			if _, err := os.Lstat(filepath.Join(w.root, "pods")); err == nil {
				t.Error("something was made for it")
			}
			w.binds = nil
			failure(t, m.Prepare(t.Context(), newPod(c.volume, claim("db", "store")), w))
			if c.volume.PersistentVolumeClaim == nil && slices.Contains(w.binds, "store") {
				t.Error("a claim was bound for it")
			}
		})
	}
}

func TestRefusedByItsPlugin(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	f := failure(t, m.Prepare(t.Context(), newPod(v1.Volume{Name: "share", VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{}}}), w))
	if !f.Permanent || !strings.Contains(f.Message, `MountVolume.SetUp failed for volume "share" : volumes of the kind nfs are not supported`) || !strings.Contains(f.Message, "hostPath") {
		t.Errorf("got %+v", f)
	}
	must(t, m.Clean(t.Context(), "uid-1"))
	w.clean()
}

func TestNamesThatAreNoPathElements(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	must(t, os.MkdirAll(filepath.Join(w.root, "pods", "other"), 0o750))
	for _, bad := range []string{"", ".", "..", "../x", "a/b", "/etc"} {
		p := newPod()
		p.UID = types.UID(bad)
		failure(t, m.Prepare(t.Context(), p, w))
		if _, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main"}); err == nil {
			t.Errorf("Mounts took UID %q", bad)
		}
		if m.Clean(t.Context(), p.UID) == nil || m.Release(t.Context(), p.UID) == nil {
			t.Errorf("UID %q was taken", bad)
		}
		if f := failure(t, m.Prepare(t.Context(), newPod(emptyDir(bad, "")), w)); !f.Permanent {
			t.Errorf("volume %q: %+v", bad, f)
		}
		w.bind("store", t.TempDir())
		w.bound["store"].pv.Name = bad
		if f := failure(t, m.Prepare(t.Context(), newPod(claim("db", "store")), w)); !f.Permanent {
			t.Errorf("PersistentVolume %q: %+v", bad, f)
		}
		p = newPod()
		p.Spec.Containers[0].Name = bad
		if _, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: bad}); err == nil {
			t.Errorf("Mounts took container %q", bad)
		}
	}
	if _, err := os.Stat(filepath.Join(w.root, "pods", "other")); err != nil {
		t.Error(err)
	}
}

func TestEndedContext(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Prepare(ctx, newPod(emptyDir("data", "")), w); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestAMissingObjectHoldsThePodUntilItAppears(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	p := w.want(newPod(configMap("conf", "web"), emptyDir("data", "")))
	for range 3 {
		f := failure(t, m.Prepare(t.Context(), p, w))
		if f.Permanent || f.Awaits.String() != "ConfigMap default/web" || !f.NotBefore.IsZero() || !strings.HasPrefix(f.Message, `MountVolume.SetUp failed for volume "conf" : `) {
			t.Errorf("got %+v", f)
		}
	}
	w.setConfigMap("web", map[string]string{"a": "1"})
	must(t, m.Prepare(t.Context(), p, w))
	if !holds(filepath.Join(w.root, "pods/uid-1/volumes/kubernetes.io~configmap/conf/a"), "1") {
		t.Error("the file isn't there")
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

func TestWhatWaitsForAnObjectIsTriedWheneverItIsAskedFor(t *testing.T) {
	w, s := newWorld(t), newStand()
	c := w.config()
	c.Plugins = []volume.Plugin{s}
	m, _ := w.start(c)
	s.setFail("mount data", volume.Awaits(pod.Object{Kind: "Share", Name: "one"}, "it isn't there"))
	p := w.want(newPod(hostPath("data", "stand:")))
	for n := range 3 {
		if f := failure(t, m.Prepare(t.Context(), p, w)); f.Awaits.String() != "Share one" || s.count("mount data") != n+1 {
			t.Errorf("got %+v after %v", f, s.calls)
		}
	}
}

func TestAMissingClaimHoldsThePod(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	p := w.want(newPod(claim("db", "store")))
	if f := failure(t, m.Prepare(t.Context(), p, w)); f.Awaits.String() != "PersistentVolumeClaim default/store" || f.Permanent {
		t.Errorf("got %+v", f)
	}
	w.bind("store", t.TempDir())
	must(t, m.Prepare(t.Context(), p, w))
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

func TestAllThatFailedIsReportedAtOnceButNotTooMuch(t *testing.T) {
	w, s := newWorld(t), newStand()
	c := w.config()
	c.Plugins = []volume.Plugin{s}
	m, _ := w.start(c)
	var volumes []v1.Volume
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		volumes = append(volumes, hostPath(name, "stand:"))
		if name != "e" {
			s.setFail("mount "+name, errors.New("no "+name))
		}
	}
	p := w.want(newPod(volumes...))
	f := failure(t, m.Prepare(t.Context(), p, w))
	if want := `MountVolume.SetUp failed for volume "a" : no a; MountVolume.SetUp failed for volume "b" : no b; MountVolume.SetUp failed for volume "c" : no c; and 1 more`; f.Message != want {
		t.Errorf("got %q", f.Message)
	}
	if f.NotBefore.IsZero() || f.Permanent || f.Awaits != (pod.Object{}) {
		t.Errorf("got %+v", f)
	}
	// It isn't tried again before its time.
	failure(t, m.Prepare(t.Context(), p, w))
	if n := s.count("mount a"); n != 1 {
		t.Errorf("tried %d times", n)
	}
	must(t, m.Clean(t.Context(), p.UID))
	// Nor does the back-off outlive the pod.
	failure(t, m.Prepare(t.Context(), p, w))
	if n := s.count("mount a"); n != 2 {
		t.Errorf("tried %d times", n)
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

func TestFailuresOfPullsAreReportedAsTheyAre(t *testing.T) {
	w, s := newWorld(t), newStand()
	c := w.config()
	c.Plugins = []volume.Plugin{s}
	m, _ := w.start(c)
	later := time.Now().Add(time.Hour)
	s.setFail("mount files", &pod.Failure{Reason: "ErrImagePull", Message: "no such image", NotBefore: later, Awaits: pod.Object{Kind: "Secret", Namespace: "default"}})
	f := failure(t, m.Prepare(t.Context(), w.want(newPod(hostPath("files", "stand:"))), w))
	if f.Reason != "ErrImagePull" || f.Message != `MountVolume.SetUp failed for volume "files" : no such image` || !f.NotBefore.Equal(later) || f.Awaits != (pod.Object{Kind: "Secret", Namespace: "default"}) {
		t.Errorf("got %+v", f)
	}
	s.setFail("mount other", errors.New("broken"))
	f = failure(t, m.Prepare(t.Context(), w.want(namedPod("b", "uid-2", hostPath("files", "stand:"), hostPath("other", "stand:"))), w))
	if f.Reason != "FailedMount" || f.NotBefore.Equal(later) {
		t.Errorf("beside another failure: %+v", f)
	}
}

func TestAClaimForOnePodIsOnePods(t *testing.T) {
	w := newWorld(t)
	m, stop := w.start(w.config())
	w.bind("store", t.TempDir(), v1.ReadWriteOncePod)
	w.bind("open", t.TempDir(), v1.ReadWriteOnce)
	a := w.want(namedPod("a", "uid-a", claim("db", "store"), claim("rest", "open")))
	b := w.want(namedPod("b", "uid-b", claim("db", "store"), claim("rest", "open")))
	must(t, m.Prepare(t.Context(), a, w))
	must(t, m.Prepare(t.Context(), a, w))
	refused := func() {
		t.Helper()
		f := failure(t, m.Prepare(t.Context(), b, w))
		if f.Awaits.String() != "PersistentVolumeClaim default/store" || !strings.Contains(f.Message,
			"volume uses the ReadWriteOncePod access mode and is already in use by another pod, default/a (UID uid-a)") {
			t.Errorf("got %+v", f)
		}
	}
	refused()
	stop()
	m, _ = w.start(w.config())
	refused() // the next agent knows it before it knows that pod
	if w.freed != 0 {
		t.Errorf("freed %d times", w.freed)
	}
	must(t, m.Release(t.Context(), a.UID))
	if w.freed != 1 {
		t.Errorf("freed %d times", w.freed)
	}
	must(t, m.Prepare(t.Context(), b, w))
	must(t, m.Clean(t.Context(), a.UID))
	must(t, m.Clean(t.Context(), b.UID))
	w.clean()
}

// Two pods that want the same two claims never wait for each other.
func TestClaimsForOnePodAreTakenTogether(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	w.bind("one", t.TempDir(), v1.ReadWriteOncePod)
	w.bind("two", t.TempDir(), v1.ReadWriteOncePod)
	a := w.want(namedPod("a", "uid-a", claim("x", "one")))
	b := w.want(namedPod("b", "uid-b", claim("x", "one"), claim("y", "two")))
	c := w.want(namedPod("c", "uid-c", claim("y", "two")))
	must(t, m.Prepare(t.Context(), a, w))
	failure(t, m.Prepare(t.Context(), b, w))
	must(t, m.Prepare(t.Context(), c, w)) // b holds none while it waits
}

// owned records what is given to groups.
type owned struct {
	calls []filetree.Options
	dirs  []string
}

func (o *owned) apply(_ context.Context, dir string, opt filetree.Options) error {
	o.calls, o.dirs = append(o.calls, opt), append(o.dirs, dir)
	for n := range 3 {
		opt.Progress((n + 1) * 1000)
	}
	return nil
}

func TestVolumesThatOutliveThePodAreGivenToItsGroupOnce(t *testing.T) {
	w := newWorld(t)
	o := &owned{}
	c := w.config()
	c.ApplyFSGroup, c.FirstProgress, c.NextProgress = o.apply, time.Nanosecond, time.Hour
	m, stop := w.start(c)
	w.bind("store", t.TempDir())
	policy := v1.FSGroupChangeOnRootMismatch
	p := newPod(claim("db", "store"), emptyDir("data", ""))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To(int64(1234)), FSGroupChangePolicy: &policy}
	w.want(p)
	for range 2 {
		must(t, m.Prepare(t.Context(), p, w))
	}
	dir := filepath.Join(w.root, "pods/uid-1/volumes/kubernetes.io~local-volume/pv-store")
	if len(o.calls) != 1 || o.calls[0].GID != 1234 || o.calls[0].Policy != policy || o.calls[0].ReadOnly || o.dirs[0] != dir {
		t.Fatalf("given to groups: %+v at %v", o.calls, o.dirs)
	}
	if got := w.told(); len(got) != 1 || !strings.Contains(got[0], `VolumePermissionChangeInProgress: volume "db"`) || !strings.Contains(got[0], "1000 so far") {
		t.Errorf("progress: %q", got)
	}
	// A pod that is adopted while it runs is left alone.
	stop()
	w.setRunning(p.UID, true)
	m, stop = w.start(c)
	must(t, m.Prepare(t.Context(), p, w))
	if !slices.Contains(w.metered, "reconstructed false") {
		t.Errorf("not counted: %v", w.metered)
	}
	if len(o.calls) != 1 {
		t.Errorf("given to groups again: %v", o.calls)
	}
	// One whose containers were never started isn't.
	stop()
	w.setRunning(p.UID, false)
	m, _ = w.start(c)
	must(t, m.Prepare(t.Context(), p, w))
	if len(o.calls) != 2 {
		t.Errorf("given to groups %d times", len(o.calls))
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// brokenImages can't have images, and says for which it was asked.
type brokenImages struct {
	images
	asked chan string
}

func (b brokenImages) Mount(_ context.Context, r volume.Request) (volume.Mounted, error) {
	b.asked <- r.Spec.Name()
	reason := pod.Reason("ErrImagePull")
	if r.Spec.Name() == "never" {
		reason = "ErrImageNeverPull"
	}
	return volume.Mounted{}, &pod.Failure{Reason: reason, Message: "no such image", NotBefore: time.Now().Add(time.Hour)}
}

// TestImagesThatCantBeHad hold up the containers that mount them, and no pod.
func TestImagesThatCantBeHad(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	asked := make(chan string, 10)
	c.Plugins = append([]volume.Plugin{brokenImages{asked: asked}}, c.Plugins...)
	m, _ := w.start(c)
	image := func(name string) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "r.io/" + name}}}
	}
	p := w.want(newPod(image("unused"), image("pulled"), image("never"), emptyDir("data", "")))
	must(t, m.Prepare(t.Context(), p, w))
	got := []string{<-asked, <-asked, <-asked}
	if slices.Sort(got); !slices.Equal(got, []string{"never", "pulled", "unused"}) {
		t.Errorf("asked for %q", got)
	}
	must(t, m.Prepare(t.Context(), p, w)) // while they back off
	p = w.want(namedPod("b", "uid-2", p.Spec.Volumes...))
	p.Spec.InitContainers = []v1.Container{{Name: "init", VolumeMounts: []v1.VolumeMount{{Name: "pulled", MountPath: "/a"}, {Name: "never", MountPath: "/b"}}}}
	for range 2 {
		must(t, m.Prepare(t.Context(), p, w))
		must(t, m.Images(t.Context(), p, &p.Spec.Containers[0]))
		f := failure(t, m.Images(t.Context(), p, &p.Spec.InitContainers[0]))
		if f.Reason != "ErrImagePull" || f.Message != "no such image" || f.Image != "r.io/pulled" || f.NotBefore.IsZero() {
			t.Errorf("got %+v", f)
		}
	}
}

// TestClaimThatIsBeingDeleted: nobody begins to use it, and who has it goes on, also after a restart of the agent, whatever
// the pod's status says (kubernetes/kubernetes#130335).
func TestClaimThatIsBeingDeleted(t *testing.T) {
	w := newWorld(t)
	m, stop := w.start(w.config())
	w.bind("store", t.TempDir())
	p := w.want(newPod(claim("db", "store")))
	p.Status.Phase = v1.PodPending
	must(t, m.Prepare(t.Context(), p, w))
	w.mu.Lock()
	w.bound["store"].claim.DeletionTimestamp = ptr.To(metav1.Now())
	w.mu.Unlock()
	must(t, m.Prepare(t.Context(), p, w))
	other := w.want(namedPod("late", "uid-2", claim("db", "store"), emptyDir("d", "")))
	if f := failure(t, m.Prepare(t.Context(), other, w)); !strings.Contains(f.Message, "being deleted") || f.Awaits != (pod.Object{Kind: "PersistentVolumeClaim", Namespace: "default", Name: "store"}) {
		t.Errorf("a pod that comes later: %+v", f)
	}
	stop()
	m, _ = w.start(w.config())
	must(t, m.Prepare(t.Context(), p, w))
	if got := m.Instances(); len(got) != 1 {
		t.Errorf("mounted: %v", got)
	}
	other.Status.Phase = v1.PodRunning // by an earlier agent, whose disk is gone
	must(t, m.Prepare(t.Context(), other, w))
	for _, p := range []*v1.Pod{p, other} {
		must(t, m.Clean(t.Context(), p.UID))
	}
	w.clean()
}

// addContainer returns the pod with one more container, which was added to it and mounts this volume.
func addContainer(p *v1.Pod, name, volume string) (*v1.Pod, *v1.Container) {
	p = p.DeepCopy()
	p.Generation++
	p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{
		Name: name, VolumeMounts: []v1.VolumeMount{{Name: volume, MountPath: "/volume"}}}})
	return p, pod.ContainerNamed(p, name)
}

// sparePod returns a pod with these volumes, whose container mounts only the first one.
func sparePod(volumes ...v1.Volume) *v1.Pod {
	p := newPod(volumes...)
	user := &p.Spec.Containers[1]
	user.VolumeMounts = user.VolumeMounts[:1]
	return p
}

// TestVolumesThatNobodyMounts: they aren't made, and nothing is asked for. A container that is added may mount them. Its
// volumes hold up nobody else.
func TestVolumesThatNobodyMounts(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	csi := v1.Volume{Name: "csi", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "none.example.com"}}}
	p := w.want(sparePod(emptyDir("data", ""), configMap("conf", "missing"), claim("db", "missing"), csi,
		typedHostPath("node", "/no/such/file", v1.HostPathFile), emptyDir("spare", "")))
	must(t, m.Prepare(t.Context(), p, w))
	places := func() (names []string) {
		found, err := filepath.Glob(filepath.Join(w.root, "pods/uid-1/volumes/*/*"))
		must(t, err)
		for _, f := range found {
			names = append(names, filepath.Base(f))
		}
		return names
	}
	if got := places(); !slices.Equal(got, []string{"data"}) || len(w.binds) > 0 {
		t.Errorf("made %q, bound %q", got, w.binds)
	}
	w.setRunning(p.UID, true)
	own := func(c *v1.Container) error { return m.PrepareContainer(t.Context(), w.want(p), c, w) }
	must(t, own(&p.Spec.Containers[1]))
	reasons := map[string]string{"conf": `MountVolume.SetUp failed for volume "conf" : `, "csi": "MountVolume.SetUp", "db": "Unable to attach or mount volumes: unmounted volumes=[db]", "node": "MountVolume.SetUp"}
	for _, name := range slices.Sorted(maps.Keys(reasons)) {
		next, c := addContainer(p, "debug-"+name, name)
		p = next
		if f := failure(t, own(c)); f.Reason != pod.ReasonFailedMount || !strings.HasPrefix(f.Message, reasons[name]) || strings.Count(f.Message, "failed for volume") > 1 {
			t.Errorf("%s: %+v", name, f)
		}
	}
	p, c := addContainer(p, "debug", "spare")
	must(t, own(c))
	mounts, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "debug"})
	must(t, err)
	if len(mounts) != 1 || !strings.HasSuffix(mounts[0].HostPath, "/spare") {
		t.Errorf("mounts of the added container: %v", mounts)
	}
	must(t, own(&p.Spec.Containers[1]))
	must(t, m.Prepare(t.Context(), p, w))
	if got := places(); !slices.Equal(got, []string{"data", "spare"}) {
		t.Errorf("made %q", got)
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// TestVolumeThatARunningPodGets: it is a new volume, with the pod's fsGroup. After a restart of the agent it is taken over
// if the container runs, and torn down with the pod even if nobody knows of the container any more.
func TestVolumeThatARunningPodGets(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	given := map[string]int{}
	c.ApplyFSGroup = func(_ context.Context, dir string, _ filetree.Options) error {
		given[filepath.Base(dir)]++
		return nil
	}
	w.bind("first", t.TempDir())
	w.bind("second", t.TempDir())
	p := sparePod(claim("one", "first"), claim("two", "second"))
	p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](7)}
	m, stop := w.start(c)
	must(t, m.Prepare(t.Context(), w.want(p), w))
	w.setRunning(p.UID, true)
	before := p
	p, debug := addContainer(p, "debug", "two")
	must(t, m.PrepareContainer(t.Context(), w.want(p), debug, w))
	if given["pv-first"] != 1 || given["pv-second"] != 1 || slices.ContainsFunc(w.metered, func(s string) bool { return strings.HasPrefix(s, "reconstructed") }) {
		t.Errorf("given to the group: %v, counted: %q", given, w.metered)
	}
	w.added = []string{"debug"}
	stop()

	m, stop = w.start(c)
	must(t, m.Prepare(t.Context(), p, w))
	adopted := 0
	for _, s := range w.metered {
		if s == "reconstructed false" {
			adopted++
		}
	}
	if given["pv-first"] != 1 || given["pv-second"] != 1 || adopted != 2 || len(m.Instances()) != 2 {
		t.Errorf("given to the group: %v, taken over: %d of %d", given, adopted, len(m.Instances()))
	}
	stop()

	w.added = nil
	m, stop = w.start(c)
	must(t, m.Prepare(t.Context(), w.want(before), w))
	if len(m.Instances()) != 1 || len(mountTable(t, w.root)) != 2 {
		t.Errorf("%d volumes are mounted, %v", len(m.Instances()), mountTable(t, w.root))
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
	stop()
}

// TestFilesOfAnAddedContainerStay: another container may read what one has left in an emptyDir, also if no container ran
// while the agent was started anew.
func TestFilesOfAnAddedContainerStay(t *testing.T) {
	w := newWorld(t)
	m, stop := w.start(w.config())
	p := sparePod(emptyDir("data", ""), emptyDir("dump", ""), emptyDir("left", ""))
	must(t, m.Prepare(t.Context(), w.want(p), w))
	p, debug := addContainer(p, "debug", "dump")
	must(t, m.PrepareContainer(t.Context(), w.want(p), debug, w))
	dump := contentOf(w, p.UID, "kubernetes.io~empty-dir", "dump", "core")
	must(t, os.WriteFile(dump, []byte("x"), 0o600))
	left := contentOf(w, p.UID, "kubernetes.io~empty-dir", "left", "")
	must(t, os.Mkdir(left, 0o700)) // as an agent did that made all volumes
	stop()
	m, _ = w.start(w.config())
	must(t, m.Prepare(t.Context(), p, w))
	if !holds(dump, "x") {
		t.Error("the file is gone")
	}
	if _, err := os.Stat(left); err == nil {
		t.Error("the volume that nobody mounts is still there")
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// TestAnOlderVersionOfThePodTakesNothingAway from what the newest wants.
func TestAnOlderVersionOfThePodTakesNothingAway(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	old := sparePod(emptyDir("data", ""), emptyDir("spare", ""))
	p, debug := addContainer(old, "debug", "spare")
	must(t, m.Prepare(t.Context(), w.want(p), w))
	must(t, m.PrepareContainer(t.Context(), p, debug, w))
	must(t, m.Prepare(t.Context(), old, w))
	if desired, _ := m.Totals(); desired["kubernetes.io/empty-dir"] != 2 {
		t.Errorf("desired: %v", desired)
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// TestVolumesOfOneClaimAreMountedTogether: one that only an added container mounts, and may write, doesn't come too late.
func TestVolumesOfOneClaimAreMountedTogether(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	w.bind("store", t.TempDir())
	read := claim("read", "store")
	read.PersistentVolumeClaim.ReadOnly = true
	p := sparePod(read, claim("write", "store"))
	must(t, m.Prepare(t.Context(), w.want(p), w))
	w.setRunning(p.UID, true)
	p, debug := addContainer(p, "debug", "write")
	must(t, m.PrepareContainer(t.Context(), w.want(p), debug, w))
	mounts, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "debug"})
	must(t, err)
	if mounts[0].Readonly {
		t.Error("it is read-only")
	}
	must(t, os.WriteFile(filepath.Join(mounts[0].HostPath, "a"), nil, 0o600))
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// TestAnAddedContainerReservesItsClaimOnly: a claim of another pod keeps it waiting, and the pod keeps its own claim.
func TestAnAddedContainerReservesItsClaimOnly(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	w.bind("mine", t.TempDir(), v1.ReadWriteOncePod)
	w.bind("theirs", t.TempDir(), v1.ReadWriteOncePod)
	other := w.want(namedPod("other", "uid-2", claim("db", "theirs")))
	must(t, m.Prepare(t.Context(), other, w))
	p := sparePod(claim("one", "mine"), claim("two", "theirs"))
	must(t, m.Prepare(t.Context(), w.want(p), w))
	p, debug := addContainer(p, "debug", "two")
	debug.VolumeMounts = append(debug.VolumeMounts, v1.VolumeMount{Name: "one", MountPath: "/one"})
	if f := failure(t, m.PrepareContainer(t.Context(), w.want(p), debug, w)); f.Awaits.Name != "theirs" {
		t.Errorf("got %+v", f)
	}
	failure(t, m.Prepare(t.Context(), w.want(namedPod("third", "uid-3", claim("db", "mine"))), w))
	if desired, actual := m.Totals(); desired["kubernetes.io/local-volume"] != 2 || actual["kubernetes.io/local-volume"] != 2 {
		t.Errorf("desired %v, mounted %v", desired, actual)
	}
	for _, uid := range []types.UID{p.UID, other.UID, "uid-3"} {
		must(t, m.Clean(t.Context(), uid))
	}
	w.clean()
}

// TestUnsupported: what no claim or object can change is told before a container is added.
func TestUnsupported(t *testing.T) {
	m := manager.New(newWorld(t).config(), logr.Discard())
	csi := v1.Volume{Name: "csi", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{Driver: "none.example.com"}}}
	p := newPod(csi, configMap("conf", "missing"), claim("db", "missing"))
	for volume, reason := range map[string]pod.Reason{"csi": "FailedMount", "conf": "", "db": ""} {
		with, c := addContainer(p, "debug", volume)
		if f := m.Unsupported(with, c); (f == nil) != (reason == "") || f != nil && (f.Reason != reason || !f.Permanent) {
			t.Errorf("%s: %+v", volume, f)
		}
	}
	c := &v1.Container{Name: "debug", VolumeDevices: []v1.VolumeDevice{{Name: "db", DevicePath: "/dev/db"}}}
	if f := m.Unsupported(p, c); f == nil || !f.Permanent {
		t.Errorf("a device: %+v", f)
	}
}

// TestNothingIsMadeForAPodThatIsGivenUp while its claims are looked for.
func TestNothingIsMadeForAPodThatIsGivenUp(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c.Claims = cancelling{w, cancel}
	w.bind("store", t.TempDir())
	m, _ := w.start(c)
	if err := m.Prepare(ctx, w.want(newPod(claim("db", "store"), claim("more", "missing"))), w); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if !slices.Equal(w.binds, []string{"store"}) {
		t.Errorf("bound %q", w.binds)
	}
	w.clean()
}

// cancelling binds claims, and cancels the context of the caller meanwhile.
type cancelling struct {
	*world
	cancel context.CancelFunc
}

func (c cancelling) Bind(ctx context.Context, p *v1.Pod, o object.View, v *v1.Volume) (*v1.PersistentVolumeClaim, *v1.PersistentVolume, error) {
	c.cancel()
	return c.world.Bind(ctx, p, o, v)
}
