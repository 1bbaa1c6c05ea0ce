package manager_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

// share is a plugin whose volumes are parts of a network share, which is brought to the node once:
// both mounts are real. The device's directory has a note beside the mount.
type share struct {
	*stand
	mu  sync.Mutex
	now map[string]int // calls for one device at once
}

func newShare(w *world) *share {
	s := &share{stand: newStand(), now: map[string]int{}}
	s.root = w.root
	return s
}

var _ volume.Stager = (*share)(nil)

func (*share) Name() string { return "kubernetes.io/share" }

func (*share) Supports(s volume.Spec) bool {
	return s.Persistent == nil && s.Volume.NFS != nil
}

func (s *share) Device(v volume.Spec) (key, dir string) {
	server := v.Volume.NFS.Server
	return server, filepath.Join(s.root, "plugins/kubernetes.io/share", server)
}

func (*share) Note(dir string) (volume.Note, error) {
	server, err := os.ReadFile(filepath.Join(dir, "note"))
	if err != nil {
		return volume.Note{}, err
	}
	return volume.Note{Device: string(server)}, nil
}

func (*share) Noted() []string { return nil }

func (s *share) alone(device string) (done func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now[device]++
	if s.now[device] > 1 {
		err = errors.New("two calls for one device at once")
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.now[device]--
	}, err
}

func (s *share) Stage(_ context.Context, g volume.Staging) error {
	done, err := s.alone(g.Device)
	defer done()
	if err := errors.Join(err, s.call("stage", g.Device)); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(g.Dir, 0o700), os.WriteFile(filepath.Join(g.Dir, "note"), []byte(g.Device), 0o600)); err != nil {
		return err
	}
	return tmpfsAt(globalmount(g.Dir))
}

func globalmount(dir string) string { return filepath.Join(dir, "globalmount") }

func (s *share) Unstage(_ context.Context, g volume.Staging) error {
	done, err := s.alone(g.Device)
	defer done()
	if err := errors.Join(err, s.call("unstage", g.Device)); err != nil {
		return err
	}
	if err := unix.Unmount(globalmount(g.Dir), unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

func (s *share) Mount(_ context.Context, r volume.Request) (volume.Mounted, error) {
	if err := s.call("mount", r.Spec.Name()); err != nil {
		return volume.Mounted{}, err
	}
	if err := os.MkdirAll(r.Dir, 0o750); err != nil {
		return volume.Mounted{}, err
	}
	var here, staged unix.Stat_t
	_, device := s.Device(r.Spec)
	if err := errors.Join(unix.Stat(r.Dir, &here), unix.Stat(globalmount(device), &staged)); err != nil {
		return volume.Mounted{}, err
	}
	if here.Dev != staged.Dev {
		if err := unix.Mount(globalmount(device), r.Dir, "", unix.MS_BIND, ""); err != nil {
			return volume.Mounted{}, err
		}
	}
	return volume.Mounted{Path: r.Dir}, nil
}

func (w *world) shareConfig(s *share) manager.Config {
	c := w.config()
	c.Plugins = append([]volume.Plugin{s}, c.Plugins...)
	return c
}

func nfs(name, server string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: server}}}
}

// devices lists what is left of staged devices.
func (w *world) devices() []string {
	entries, err := os.ReadDir(filepath.Join(w.root, "plugins", "kubernetes.io", "share"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// staged lists the records of staged devices.
func (w *world) staged() []os.DirEntry {
	records, err := os.ReadDir(filepath.Join(w.root, "staged"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		w.t.Fatal(err)
	}
	return records
}

// nothingStaged reports whether neither a device nor a record of one is left.
func (w *world) nothingStaged() bool { return len(w.devices()) == 0 && len(w.staged()) == 0 }

func TestADeviceIsStagedOnceAndUnstagedAfterItsLastVolume(t *testing.T) {
	w := newWorld(t)
	s := newShare(w)
	m, _ := w.start(w.shareConfig(s))
	a := w.want(namedPod("a", "uid-a", nfs("x", "one"), nfs("y", "one"), nfs("z", "two")))
	b := w.want(namedPod("b", "uid-b", nfs("x", "one")))
	var wg sync.WaitGroup
	for _, p := range []*v1.Pod{a, b} {
		wg.Go(func() {
			if err := m.Prepare(t.Context(), p, w); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if s.count("stage one") != 1 || s.count("stage two") != 1 {
		t.Errorf("calls: %v", s.calls)
	}
	must(t, os.WriteFile(contentOf(w, a.UID, "kubernetes.io~share", "x", "f"), []byte("1"), 0o600))
	if !holds(contentOf(w, b.UID, "kubernetes.io~share", "x", "f"), "1") {
		t.Error("the pods don't have the same share")
	}
	must(t, m.Release(t.Context(), a.UID))
	if s.count("unstage one") != 0 || s.count("unstage two") != 1 {
		t.Errorf("calls: %v", s.calls)
	}
	if got := w.devices(); len(got) != 1 {
		t.Errorf("devices: %v", got)
	}
	must(t, m.Clean(t.Context(), b.UID))
	must(t, m.Clean(t.Context(), a.UID))
	if s.count("unstage one") != 1 || len(w.devices()) != 0 {
		t.Errorf("devices %v, calls: %v", w.devices(), s.calls)
	}
	must(t, m.Prepare(t.Context(), b, w))
	if s.count("stage one") != 2 {
		t.Errorf("calls: %v", s.calls)
	}
	must(t, m.Clean(t.Context(), b.UID))
	w.clean()
}

func TestTheNextAgentKnowsWhoUsesADevice(t *testing.T) {
	w := newWorld(t)
	s := newShare(w)
	m, stop := w.start(w.shareConfig(s))
	a, b := w.want(namedPod("a", "uid-a", nfs("x", "one"))), w.want(namedPod("b", "uid-b", nfs("x", "one")))
	must(t, m.Prepare(t.Context(), a, w))
	must(t, m.Prepare(t.Context(), b, w))
	w.setRunning(a.UID, true)
	before := mountTable(t, w.root)
	stop()
	m, stop = w.start(w.shareConfig(s))
	must(t, m.Prepare(t.Context(), a, w)) // it is adopted, the other one isn't wanted any more
	if after := mountTable(t, w.root); !equal(before, after) || len(before) != 3 {
		t.Errorf("mounts %v became %v", before, after)
	}
	must(t, m.Clean(t.Context(), b.UID))
	if s.count("unstage one") != 0 {
		t.Error("a device was taken away that is in use")
	}
	stop()
	m, _ = w.start(w.shareConfig(s))
	must(t, m.Clean(t.Context(), a.UID)) // nothing is known of it but its place
	if s.count("unstage one") != 1 || len(w.devices()) != 0 {
		t.Errorf("devices %v, calls: %v", w.devices(), s.calls)
	}
	w.clean()
}

func TestDevicesOfPodsThatWentWithoutATrace(t *testing.T) {
	w := newWorld(t)
	s := newShare(w)
	m, stop := w.start(w.shareConfig(s))
	a, b := w.want(namedPod("a", "uid-a", nfs("x", "one"))), w.want(namedPod("b", "uid-b", nfs("x", "two")))
	must(t, m.Prepare(t.Context(), a, w))
	must(t, m.Prepare(t.Context(), b, w))
	stop()
	must(t, unix.Unmount(filepath.Join(w.root, "pods/uid-a/volumes/kubernetes.io~share/x"), 0))
	must(t, os.RemoveAll(filepath.Join(w.root, "pods/uid-a")))
	must(t, os.MkdirAll(filepath.Join(w.root, "plugins/kubernetes.io/share/its-own"), 0o750))
	m, _ = w.start(w.shareConfig(s))
	eventually(t, "the device is taken away", func() bool { return len(w.devices()) == 2 && len(w.staged()) == 1 })
	if s.count("unstage one") != 1 || s.count("unstage two") != 0 || !slices.Contains(w.devices(), "its-own") {
		t.Errorf("devices %v, calls: %v", w.devices(), s.calls)
	}
	must(t, m.Clean(t.Context(), b.UID))
	w.clean()
}

// A device whose driver was away is unstaged when a driver registers, also while other devices are being unstaged.
func TestDeviceOfALateDriver(t *testing.T) {
	w := newWorld(t)
	s := newShare(w)
	m, stop := w.start(w.shareConfig(s))
	must(t, m.Prepare(t.Context(), w.want(namedPod("a", "uid-a", nfs("x", "one"))), w))
	stop()
	must(t, unix.Unmount(filepath.Join(w.root, "pods/uid-a/volumes/kubernetes.io~share/x"), 0))
	must(t, os.RemoveAll(filepath.Join(w.root, "pods/uid-a")))
	s.setFail("unstage one", errors.New("its driver is away"))
	resume := s.hang(t, "unstage one")
	w.start(w.shareConfig(s))
	<-s.entered // the first sweep
	w.changed.Wake(pod.Object{Kind: pod.CSIDriver, Name: "share"})
	resume()
	eventually(t, "the second sweep fails, too", func() bool { return s.count("unstage one") >= 2 })
	s.setFail("unstage one", nil)
	w.changed.Wake(pod.Object{Kind: pod.CSIDriver, Name: "share"})
	eventually(t, "the device is taken away", w.nothingStaged)
	w.clean()
}

func TestADeviceThatCannotBeStagedOrUnstagedYet(t *testing.T) {
	w := newWorld(t)
	s := newShare(w)
	c := w.shareConfig(s)
	m, _ := w.start(c)
	p := w.want(namedPod("a", "uid-a", nfs("x", "one")))
	s.setFail("stage one", errors.New("no route"))
	f := failure(t, m.Prepare(t.Context(), p, w))
	if !strings.Contains(f.Message, `MountVolume.SetUp failed for volume "x" : stage the device one: no route`) || f.NotBefore.IsZero() {
		t.Errorf("got %+v", f)
	}
	s.setFail("stage one", nil)
	must(t, m.Clean(t.Context(), p.UID))
	must(t, m.Prepare(t.Context(), p, w))
	s.setFail("unstage one", errors.New("busy"))
	must(t, m.Clean(t.Context(), p.UID)) // the pod doesn't wait for its device
	if _, err := os.Lstat(filepath.Join(w.root, "pods", string(p.UID))); !errors.Is(err, fs.ErrNotExist) || len(w.devices()) != 1 {
		t.Errorf("devices: %v, the pod's directory: %v", w.devices(), err)
	}
	tried := s.count("unstage one")
	eventually(t, "it tries again and again", func() bool { return s.count("unstage one") > tried+1 })

	// The next pod stages the device again, although the first one's is still there.
	b := w.want(namedPod("b", "uid-b", nfs("x", "one")))
	must(t, m.Prepare(t.Context(), b, w))
	if s.count("stage one") != 3 {
		t.Errorf("calls: %v", s.calls)
	}
	s.setFail("unstage one", nil)
	w.changed.Wake(pod.Object{Kind: pod.CSIDriver, Name: "share"})
	if calls := s.count("unstage one"); len(w.devices()) != 1 {
		t.Errorf("a device was unstaged that is in use: %d calls", calls)
	}
	must(t, m.Clean(t.Context(), b.UID))
	if len(w.devices()) != 0 {
		t.Errorf("devices: %v", w.devices())
	}

	must(t, m.Prepare(t.Context(), w.want(p), w))
	s.setFail("unstage one", errors.New("busy"))
	must(t, m.Clean(t.Context(), p.UID))
	s.setFail("unstage one", nil)
	eventually(t, "the device is taken away", w.nothingStaged)
	w.clean()
}
