package manager_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

// claimed is a plugin whose volumes are claims.
type claimed struct{ *stand }

func (claimed) Supports(s volume.Spec) bool { return s.Persistent != nil }

// withShares runs a manager for network shares, in virtual time.
func withShares(t *testing.T, test func(t *testing.T, w *world, shares *share, m *manager.Manager)) {
	shares := &share{now: map[string]int{}}
	plugins := func(s *stand) []volume.Plugin {
		shares.stand = s
		return []volume.Plugin{shares}
	}
	withPlugins(t, plugins, func(t *testing.T, w *world, _ *stand, m *manager.Manager) { test(t, w, shares, m) })
}

func TestNothingPilesUpBehindAClaimThatHangs(t *testing.T) {
	plugins := func(s *stand) []volume.Plugin { return []volume.Plugin{claimed{s}} }
	withPlugins(t, plugins, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		w.bind("store", t.TempDir())
		p := w.want(newPod(claim("a", "store"), claim("b", "store")))
		resume := s.hang(t, "mount pv-store")
		defer resume()
		for range 1000 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := m.Prepare(ctx, p, w); err == nil {
				t.Fatal("it is said to be mounted")
			}
			cancel()
		}
		synctest.Wait()
		stacks := make([]byte, 16<<20)
		if n := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "operations.(*Group).run("); n != 2 {
			t.Errorf("%d operations, want one for each name", n)
		}
		resume()
		must(t, m.Prepare(t.Context(), p, w))
		if n := s.count("mount pv-store"); n != 2 {
			t.Errorf("mounted %d times", n)
		}
		must(t, m.Clean(t.Context(), p.UID))
		w.clean()
	})
}

// A volume that is about to go is no volume for a pod that comes back.
func TestAPodThatComesBackWhileItsVolumeIsTakenDown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		p := w.want(newPod(hostPath("nfs", "stand:")))
		must(t, m.Prepare(t.Context(), p, w))
		resume := s.hang(t, "unmount nfs")
		defer resume()
		if err := m.Release(t.Context(), p.UID); err == nil {
			t.Fatal("it is said to be unmounted")
		}
		if f := failure(t, m.Prepare(t.Context(), p, w)); !strings.Contains(f.Message, `volume "nfs" at stand:: not mounted after 10s: still being unmounted`) {
			t.Errorf("got %+v", f)
		}
		done := make(chan error, 1)
		go func() { done <- m.Prepare(t.Context(), p, w) }()
		synctest.Wait()
		resume()
		must(t, <-done)
		synctest.Wait()
		if s.count("mount nfs") != 2 || len(mountTable(t, w.root)) != 1 {
			t.Errorf("mounted: %v, calls: %v", mountTable(t, w.root), s.calls)
		}
		s.setFail("unmount nfs", errors.New("the server says no"))
		if m.Release(t.Context(), p.UID) == nil {
			t.Error("it is said to be unmounted")
		}
		must(t, m.Prepare(t.Context(), p, w))
		if desired, actual := m.Totals(); s.count("mount nfs") != 3 || desired["test.example/stand"] != 1 || actual["test.example/stand"] != 1 {
			t.Errorf("Totals: %v, %v, calls: %v", desired, actual, s.calls)
		}
		s.setFail("unmount nfs", nil)
		must(t, m.Clean(t.Context(), p.UID))
		w.clean()
	})
}

func TestAPodThatComesBackBeforeItsVolumeIsTakenDown(t *testing.T) {
	following(t, func(t *testing.T, w *world, f *follower, m *manager.Manager) {
		w.setConfigMap("web", map[string]string{"a": "1"})
		p := w.want(newPod(configMap("conf", "web")))
		must(t, m.Prepare(t.Context(), p, w))
		resume := f.hang(t, "refresh conf")
		defer resume()
		w.setConfigMap("web", map[string]string{"a": "2"})
		<-f.entered // what takes it down has to wait for that
		if err := m.Release(t.Context(), p.UID); err == nil {
			t.Fatal("it is said to be unmounted")
		}
		done := make(chan error, 1)
		go func() { done <- m.Prepare(t.Context(), p, w) }()
		synctest.Wait()
		resume()
		must(t, <-done)
		synctest.Wait()
		if f.count("mount conf") != 2 || len(mountTable(t, w.root)) != 1 {
			t.Errorf("mounted: %v, calls: %v", mountTable(t, w.root), f.calls)
		}
		must(t, m.Clean(t.Context(), p.UID))
		w.clean()
	})
}

// What is removed of a pod takes nothing along that is made for the one that comes back.
func TestAPodThatComesBackWhileItsDirIsRemoved(t *testing.T) {
	withShares(t, func(t *testing.T, w *world, s *share, m *manager.Manager) {
		p := w.want(newPod(nfs("x", "one"), emptyDir("data", "")))
		s.setFail("mount x", errors.New("no such export"))
		failure(t, m.Prepare(t.Context(), p, w)) // x has a device, but no directory
		s.setFail("mount x", nil)
		resume := s.hang(t, "unstage one")
		defer resume()
		if err := m.Release(t.Context(), p.UID); err == nil || !strings.Contains(err.Error(), "the volumes' directories: still being removed after 10s") {
			t.Fatalf("got %v", err)
		}
		f := failure(t, m.Prepare(t.Context(), p, w))
		if f.Message != "clean up an earlier pod with this UID: the volumes' directories: still being removed after 2m0s: the file system doesn't answer" || f.Permanent || f.NotBefore.After(time.Now()) {
			t.Errorf("got %+v", f)
		}
		done := make(chan error, 1)
		go func() { done <- m.Prepare(t.Context(), p, w) }()
		synctest.Wait()
		resume()
		must(t, <-done)
		synctest.Wait()
		dir, err := m.EmptyDir(p, "data")
		must(t, err)
		must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
		must(t, m.Clean(t.Context(), p.UID))
		w.clean()
	})
}

// Nobody who asks for a volume gets that of an earlier version of the pod, though its operation is joined.
func TestAVolumeThatChangesWhileItIsMounted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		resume := s.hang(t, "mount data")
		defer resume()
		failure(t, m.Prepare(t.Context(), w.want(newPod(hostPath("data", "stand:old"))), w))
		p := w.want(newPod(hostPath("data", "stand:new")))
		done := make(chan error, 1)
		go func() { done <- m.Prepare(t.Context(), p, w) }()
		synctest.Wait()
		resume()
		if f := failure(t, <-done); f.Permanent || f.NotBefore.IsZero() || f.NotBefore.After(time.Now()) {
			t.Errorf("got %+v", f)
		}
		must(t, m.Prepare(t.Context(), p, w))
		if got := m.Instances(); len(got) != 1 || got[0].Spec.Volume.HostPath.Path != "stand:new" {
			t.Errorf("mounted: %+v", got)
		}
		must(t, m.Clean(t.Context(), p.UID))
		w.clean()
	})
}

// What a plugin refuses to let go of stays, however fast it says so.
func TestATeardownThatFailsIsAlwaysReportedAndLeavesTheVolume(t *testing.T) {
	w, s := newWorld(t), newStand()
	c := w.config()
	c.Plugins = append([]volume.Plugin{s}, c.Plugins...)
	m, _ := w.start(c)
	volumes := make([]v1.Volume, 100)
	for n := range volumes {
		volumes[n] = hostPath(fmt.Sprintf("v%03d", n), "stand:")
	}
	p := w.want(newPod(volumes...))
	must(t, m.Prepare(t.Context(), p, w))
	for _, name := range []string{"v000", "v001"} { // they have ended when the last one has just begun
		s.setFail("unmount "+name, errors.New("the server says no"))
	}
	err := m.Release(t.Context(), p.UID)
	if err == nil {
		t.Fatal("nothing is said to have failed")
	}
	if want := "remove volumes of pod uid-1: volume \"v000\": the server says no\nvolume \"v001\": the server says no"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if got := mountTable(t, w.root); len(got) != 2 {
		t.Errorf("mounted still: %v", got)
	}
	for _, name := range []string{"v000", "v001"} {
		s.setFail("unmount "+name, nil)
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// late is a plugin that makes a volume's directory only when it is told to give up.
type late struct{ *stand }

func (l late) Mount(ctx context.Context, r volume.Request) (volume.Mounted, error) {
	if err := l.call("mount", r.Spec.Name()); err != nil {
		return volume.Mounted{}, err
	}
	<-ctx.Done()
	return volume.Mounted{}, errors.Join(tmpfsAt(r.Dir), ctx.Err())
}

func TestWhatIsHalfMadeWhileItIsGivenUpIsTakenDownByItsPlugin(t *testing.T) {
	plugins := func(s *stand) []volume.Plugin { return []volume.Plugin{late{s}} }
	withPlugins(t, plugins, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		p := w.want(newPod(hostPath("data", "stand:")))
		failure(t, m.Prepare(t.Context(), p, w))
		must(t, m.Release(t.Context(), p.UID))
		if n := s.count("unmount data"); n != 1 {
			t.Errorf("unmounted %d times: %v", n, s.calls)
		}
		must(t, m.Clean(t.Context(), p.UID))
		w.clean()
	})
}

// What is left of the pod isn't held up, or blamed, for a volume that is being mounted.
func TestWhatIsLeftOfThePodIsRemovedBesideAMountThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		p := w.want(newPod(hostPath("nfs", "stand:"), claim("db", "store")))
		old := filepath.Join(w.root, "pods/uid-1/volumes/kubernetes.io~empty-dir/old")
		must(t, os.MkdirAll(old, 0o750))
		resume := s.hang(t, "mount nfs")
		defer resume()
		failure(t, m.Prepare(t.Context(), p, w)) // it isn't known yet what is left
		w.bind("store", t.TempDir())
		f := failure(t, m.Prepare(t.Context(), p, w))
		if !strings.HasPrefix(f.Message, `Unable to attach or mount volumes: unmounted volumes=[nfs], unattached volumes=[], failed to process volumes=[]: volume "nfs" at stand:: still being mounted`) {
			t.Errorf("got %+v", f)
		}
		if _, err := os.Lstat(old); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("it is left: %v", err)
		}
		resume()
		must(t, m.Clean(t.Context(), p.UID))
		w.clean()
	})
}

// slow is a share that takes a moment to give up.
type slow struct {
	*share
	ended chan struct{}
}

func (s slow) Stage(ctx context.Context, _ volume.Staging) error {
	<-ctx.Done()
	time.Sleep(time.Second)
	close(s.ended)
	return ctx.Err()
}

func TestTheEndGivesDevicesNoLessTimeBesideAMountThatHangs(t *testing.T) {
	w, s := newWorld(t), newStand()
	synctest.Test(t, func(t *testing.T) {
		s.entered, w.changed = make(chan string, 100), wake.NewKeyed[pod.Object]()
		device := slow{newShare(w), make(chan struct{})}
		c := w.config()
		c.Plugins = []volume.Plugin{s, device}
		m := manager.New(c, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = m.Run(ctx)
		}()
		resume := s.hang(t, "mount other")
		defer resume()
		failure(t, m.Prepare(t.Context(), w.want(newPod(hostPath("other", "stand:"), nfs("x", "one"))), w))
		cancel()
		<-ended
		select {
		case <-device.ended:
		default:
			t.Error("it ended while the device was at work still, though there was time")
		}
		resume()
		synctest.Wait()
	})
}

// A device that is on its way to the node is given up with the pod that it is for.
func TestCleaningUpGivesUpADeviceThatIsOnItsWay(t *testing.T) {
	device := slow{&share{now: map[string]int{}}, make(chan struct{})}
	plugins := func(s *stand) []volume.Plugin {
		device.stand, device.ended = s, make(chan struct{})
		return []volume.Plugin{device}
	}
	withPlugins(t, plugins, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		p := w.want(newPod(nfs("x", "one")))
		failure(t, m.Prepare(t.Context(), p, w))
		start := time.Now()
		must(t, m.Clean(t.Context(), p.UID))
		if took := time.Since(start); took != time.Second {
			t.Errorf("it took %v", took)
		}
		if got := w.devices(); len(got) != 0 {
			t.Errorf("devices: %v", got)
		}
		w.clean()
	})
}

// However many volumes hang, those of other pods are mounted before anybody is told that they take long.
func TestManyVolumesThatHangKeepNoOtherPodWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		resume := s.hang(t, "mount nfs")
		defer resume()
		for n := range 100 {
			p := w.want(namedPod(fmt.Sprint("p", n), types.UID(fmt.Sprint("uid-", n)), hostPath("nfs", "stand:")))
			go func() { _ = m.Prepare(t.Context(), p, w) }() // it fails, or waits until the end
		}
		synctest.Wait()
		must(t, m.Prepare(t.Context(), w.want(namedPod("other", "uid-other", hostPath("data", "stand:"))), w))
		resume()
		synctest.Wait()
		for n := range 100 {
			must(t, m.Clean(t.Context(), types.UID(fmt.Sprint("uid-", n))))
		}
		must(t, m.Clean(t.Context(), "uid-other"))
		w.clean()
	})
}

// That a pod is prepared and cleaned up at the same time is nothing that should be. Still nothing hangs, and
// another clean-up sets it right.
func TestPreparedAndCleanedUpAtTheSameTime(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	w.bind("store", t.TempDir(), v1.ReadWriteOncePod)
	w.setConfigMap("web", map[string]string{"a": "1"})
	w.setSecret("keys", map[string]string{"k": "v"})
	p := w.want(sixVolumes(w, "web", "uid-1"))
	var wg sync.WaitGroup
	for n := range 4 {
		wg.Go(func() {
			for range 50 {
				// Either may fail: what it made is gone under it.
				if n%2 == 0 {
					_ = m.Prepare(t.Context(), p, w)
				} else {
					_ = m.Clean(t.Context(), p.UID)
				}
			}
		})
	}
	wg.Wait()
	must(t, m.Clean(t.Context(), p.UID))
	eventually(t, "it can be prepared", func() bool { return m.Prepare(t.Context(), p, w) == nil })
	if !holds(contentOf(w, p.UID, "kubernetes.io~configmap", "conf", "a"), "1") {
		t.Error("the file isn't there")
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// One that can't be given up is what the clean-up waits for, and says so.
func TestCleaningUpBesideADeviceThatHangs(t *testing.T) {
	withShares(t, func(t *testing.T, w *world, s *share, m *manager.Manager) {
		resume := s.hang(t, "stage one")
		defer resume()
		p := w.want(newPod(nfs("x", "one")))
		failure(t, m.Prepare(t.Context(), p, w))
		if err := m.Clean(t.Context(), p.UID); err == nil || !strings.HasSuffix(err.Error(), `volume "x": still being mounted after 10s: its device is being staged`) {
			t.Errorf("got %v", err)
		}
		resume()
		must(t, m.Clean(t.Context(), p.UID))
		if got := w.devices(); len(got) != 0 {
			t.Errorf("devices: %v", got)
		}
		w.clean()
	})
}

// What a changed pod doesn't want any more isn't mounted any more when it is taken down.
func TestWhatIsTakenDownOfAChangedPodDoesNotCountAsMounted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		failure(t, m.Prepare(t.Context(), w.want(newPod(hostPath("old", "stand:"), claim("db", "store"))), w))
		w.bind("store", t.TempDir())
		p := w.want(newPod(claim("db", "store")))
		must(t, m.Prepare(t.Context(), p, w))
		if got := m.Instances(); s.count("unmount old") != 1 || len(got) != 1 || got[0].Spec.Volume.Name != "db" {
			t.Errorf("mounted: %v, calls: %v", got, s.calls)
		}
		must(t, m.Clean(t.Context(), p.UID))
		w.clean()
	})
}

func TestWhatIsFreedIsFree(t *testing.T) {
	w := newWorld(t)
	w.bind("store", t.TempDir(), v1.ReadWriteOncePod)
	a, b := w.want(namedPod("a", "uid-a", claim("db", "store"))), w.want(namedPod("b", "uid-b", claim("db", "store")))
	c := w.config()
	var m *manager.Manager
	woken := make(chan error, 1)
	c.Freed = sync.OnceFunc(func() {
		done := make(chan error, 1)
		go func() { done <- m.Prepare(t.Context(), b, w) }()
		select { // whoever is woken may be served before whoever freed it goes on
		case err := <-done:
			woken <- err
		case <-time.After(10 * time.Second):
			woken <- errors.New("it waits for whoever freed it")
		}
	})
	m, _ = w.start(c)
	must(t, m.Prepare(t.Context(), a, w))
	failure(t, m.Prepare(t.Context(), b, w))
	must(t, m.Release(t.Context(), a.UID))
	if err := <-woken; err != nil {
		t.Error(err)
	}
	for _, p := range []*v1.Pod{a, b} {
		must(t, m.Clean(t.Context(), p.UID))
	}
	w.clean()
}

// A place is mounted once: one name for it that is read-only doesn't take the others' right to write.
func TestOneClaimTwiceReadOnlyAndNot(t *testing.T) {
	for _, order := range [][]string{{"write", "read"}, {"read", "write"}} {
		t.Run(strings.Join(order, " "), func(t *testing.T) {
			w := newWorld(t)
			o := &owned{}
			c := w.config()
			c.ApplyFSGroup = o.apply
			m, _ := w.start(c)
			share := t.TempDir()
			w.bind("store", share)
			p := newPod()
			for _, name := range order {
				v := claim(name, "store")
				v.PersistentVolumeClaim.ReadOnly = name == "read"
				p.Spec.Volumes = append(p.Spec.Volumes, v)
			}
			gid := int64(1234)
			p.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: &gid}
			p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
				{Name: "write", MountPath: "/w"}, {Name: "read", MountPath: "/r"}, {Name: "read", MountPath: "/rp", SubPath: "made"}, {Name: "write", MountPath: "/wp", SubPath: "made"},
			}
			w.want(p)
			for range 2 {
				must(t, m.Prepare(t.Context(), p, w))
			}
			mounts, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main"})
			must(t, err)
			var readOnly []bool
			for _, mount := range mounts[:4] {
				readOnly = append(readOnly, mount.Readonly)
			}
			if !slices.Equal(readOnly, []bool{false, true, true, false}) {
				t.Errorf("read-only: %v", readOnly)
			}
			if err := os.WriteFile(filepath.Join(mounts[0].HostPath, "file"), nil, 0o600); err != nil {
				t.Errorf("write to the one that isn't read-only: %v", err)
			}
			if _, err := os.Stat(filepath.Join(share, "made")); err != nil {
				t.Errorf("its part: %v", err)
			}
			if len(o.calls) != 1 || o.calls[0].ReadOnly {
				t.Errorf("given to groups: %+v", o.calls)
			}
			must(t, m.Clean(t.Context(), p.UID))
			w.clean()
		})
	}
}

// ephemeralOf has a claim for each ephemeral volume, bound to one PersistentVolume.
type ephemeralOf struct {
	*world
	pv *v1.PersistentVolume
}

func (e ephemeralOf) Bind(_ context.Context, _ *v1.Pod, _ object.View, v *v1.Volume) (*v1.PersistentVolumeClaim, *v1.PersistentVolume, error) {
	return &v1.PersistentVolumeClaim{Spec: v.Ephemeral.VolumeClaimTemplate.Spec}, e.pv, nil
}

// A hostPath of the pod's own that is called as its PersistentVolume has the same place, and nothing else in common.
func TestAHostPathThatIsCalledAsAPersistentVolume(t *testing.T) {
	w := newWorld(t)
	read := []v1.PersistentVolumeAccessMode{v1.ReadOnlyMany}
	pv := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{AccessModes: read, PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: t.TempDir()}}}}
	pv.Name = "data"
	c := w.config()
	c.Claims = ephemeralOf{w, pv}
	m, _ := w.start(c)
	scratch := v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
		VolumeClaimTemplate: &v1.PersistentVolumeClaimTemplate{Spec: v1.PersistentVolumeClaimSpec{AccessModes: read}},
	}}}
	own := t.TempDir()
	p := w.want(newPod(hostPath("data", own), scratch))
	p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/d"}, {Name: "scratch", MountPath: "/s"}}
	must(t, m.Prepare(t.Context(), p, w))
	mounts, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: "main"})
	must(t, err)
	if mounts[0].HostPath != own || mounts[0].Readonly || mounts[1].HostPath != pv.Spec.HostPath.Path || !mounts[1].Readonly {
		t.Errorf("mounts: %v", mounts)
	}
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}
