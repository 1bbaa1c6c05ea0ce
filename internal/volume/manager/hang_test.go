package manager_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

// inBubble runs a manager in virtual time.
func inBubble(t *testing.T, test func(t *testing.T, w *world, s *stand, m *manager.Manager)) {
	withPlugins(t, func(s *stand) []volume.Plugin { return []volume.Plugin{s} }, test)
}

// withPlugins runs a manager that asks these plugins first, in virtual time.
func withPlugins(t *testing.T, plugins func(s *stand) []volume.Plugin, test func(t *testing.T, w *world, s *stand, m *manager.Manager)) {
	w, s := newWorld(t), newStand()
	s.root = w.root
	synctest.Test(t, func(t *testing.T) {
		s.entered, w.changed = make(chan string, 100), wake.NewKeyed[pod.Object]()
		c := w.config()
		c.Plugins = append(plugins(s), c.Plugins...)
		m := manager.New(c, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = m.Run(ctx) // nil, always
		}()
		defer func() {
			cancel()
			<-ended
		}()
		test(t, w, s, m)
	})
}

func TestAVolumeThatHangsIsReportedEarlyAndJoinedThen(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		p, resume := w.want(newPod(hostPath("nfs", "stand:/mnt/nfs"), emptyDir("data", ""))), s.hang(t, "mount nfs")
		defer resume()
		start := time.Now()
		for _, c := range []struct {
			after time.Duration
			want  string
		}{
			{10 * time.Second, `Unable to attach or mount volumes: unmounted volumes=[nfs], unattached volumes=[], failed to process volumes=[]: volume "nfs" at stand:/mnt/nfs: still being mounted after 10s`},
			{2 * time.Minute, `Unable to attach or mount volumes: unmounted volumes=[nfs], unattached volumes=[], failed to process volumes=[]: volume "nfs" at stand:/mnt/nfs: still being mounted after 2m0s: the file system doesn't answer`},
			{4 * time.Minute, `Unable to attach or mount volumes: unmounted volumes=[nfs], unattached volumes=[], failed to process volumes=[]: volume "nfs" at stand:/mnt/nfs: still being mounted after 4m0s: the file system doesn't answer`},
		} {
			f := failure(t, m.Prepare(t.Context(), p, w))
			if f.Message != c.want || f.Permanent {
				t.Errorf("got %+v, want %q", f, c.want)
			}
			if took := time.Since(start); took != c.after {
				t.Errorf("told after %v, want %v", took, c.after)
			}
			if f.NotBefore.IsZero() || f.NotBefore.After(time.Now()) {
				t.Errorf("to be asked again at %v", f.NotBefore)
			}
		}
		// Others go on, as does the rest of the pod.
		must(t, m.Prepare(t.Context(), w.want(namedPod("b", "uid-b", hostPath("x", "stand:"))), w))
		if _, err := m.EmptyDir(p, "data"); err != nil {
			t.Error(err)
		}
		done := make(chan error, 1)
		go func() { done <- m.Prepare(t.Context(), p, w) }()
		synctest.Wait()
		at := time.Now()
		resume()
		must(t, <-done)
		if took := time.Since(at); took != 0 {
			t.Errorf("who waited learned of it after %v", took)
		}
		if n := s.count("mount nfs"); n != 1 {
			t.Errorf("mounted %d times", n)
		}
		must(t, m.Clean(t.Context(), p.UID))
		must(t, m.Clean(t.Context(), "uid-b"))
		w.clean()
	})
}

func TestAFailureIsNotHeldUpByWhatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		p, resume := w.want(newPod(hostPath("nfs", "stand:"), hostPath("bad", "stand:"))), s.hang(t, "mount nfs")
		defer resume()
		s.setFail("mount bad", errors.New("broken"))
		failure(t, m.Prepare(t.Context(), p, w))
		time.Sleep(time.Minute)
		start := time.Now() // the hung one is old by now, and would be waited for longer
		f := failure(t, m.Prepare(t.Context(), p, w))
		if time.Since(start) > 10*time.Second || !strings.Contains(f.Message, "still being mounted") || !strings.Contains(f.Message, "broken") {
			t.Errorf("after %v: %+v", time.Since(start), f)
		}
		if n := s.count("mount bad"); n != 2 {
			t.Errorf("tried %d times", n)
		}
	})
}

// A wait for others who do their part as always gets no event for two minutes. Then it gets one, in time. Another failure
// starts the two minutes anew.
func TestExpectedWaitThatTakesTooLong(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		o := pod.Object{Kind: "VolumeAttachment", Name: "csi-1"}
		waits := &volume.AwaitsError{Object: o, Err: errors.New("it isn't attached yet"), Step: "WaitForAttach", Expected: true}
		refused := volume.Awaits(o, "no disk")
		s.setFail("mount a", waits)
		p := w.want(newPod(hostPath("a", "stand:")))
		prepare := func(expected bool, next time.Duration, text string) {
			t.Helper()
			f := failure(t, m.Prepare(t.Context(), p, w))
			if f.Expected != expected || f.Awaits != o || f.Reason != pod.ReasonFailedMount || !strings.Contains(f.Message, text) {
				t.Errorf("got %+v, want %q", f, text)
			}
			if next == 0 && !f.NotBefore.IsZero() || next > 0 && time.Until(f.NotBefore) != next {
				t.Errorf("the next try is at %v", f.NotBefore)
			}
		}
		const usual, late = `failed for volume "a" : it isn't`, `WaitForAttach failed for volume "a" : timed out waiting for the condition after 2m0s: it isn't`
		prepare(true, 2*time.Minute, usual)
		time.Sleep(90 * time.Second)
		prepare(true, 30*time.Second, usual)
		s.setFail("mount a", refused)
		prepare(false, 0, "no disk")
		s.setFail("mount a", waits)
		prepare(true, 2*time.Minute, usual)
		time.Sleep(2*time.Minute - 1)
		prepare(true, 1, usual)
		time.Sleep(time.Nanosecond)
		prepare(false, 0, late)
		time.Sleep(time.Hour)
		prepare(false, 0, late)
		must(t, m.Clean(t.Context(), p.UID)) // the next pod with this UID waits as always
		prepare(true, 2*time.Minute, usual)
		s.setFail("mount a", nil)
		must(t, m.Prepare(t.Context(), p, w))
		must(t, m.Clean(t.Context(), p.UID))
		w.clean()
	})
}

func TestBackOffOfAVolume(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		s.setFail("mount bad", errors.New("broken"))
		p := w.want(newPod(hostPath("bad", "stand:")))
		for n, want := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second} {
			f := failure(t, m.Prepare(t.Context(), p, w))
			if wait := time.Until(f.NotBefore); wait != want {
				t.Errorf("failure %d: to wait %v, want %v", n+1, wait, want)
			}
			time.Sleep(time.Until(f.NotBefore))
		}
		if n := s.count("mount bad"); n != 4 {
			t.Errorf("tried %d times", n)
		}
		must(t, m.Clean(t.Context(), p.UID))
		if f := failure(t, m.Prepare(t.Context(), p, w)); time.Until(f.NotBefore) != 500*time.Millisecond {
			t.Errorf("the pod before counts: to wait %v", time.Until(f.NotBefore))
		}
	})
}

// TestRoomEndsTheBackOffOfAVolume: once a disk has room again, a mount that failed for it is tried at once. Others aren't.
func TestRoomEndsTheBackOffOfAVolume(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		for _, tc := range []struct {
			err   error
			tries int
		}{{unix.ENOSPC, 2}, {unix.EIO, 2}, {errors.New("broken"), 1}} {
			s.setFail("mount bad", tc.err)
			p, before := w.want(newPod(hostPath("bad", "stand:"))), s.count("mount bad")
			failure(t, m.Prepare(t.Context(), p, w))
			failure(t, m.Prepare(t.Context(), p, w)) // waits
			m.DiskFreed()
			failure(t, m.Prepare(t.Context(), p, w))
			failure(t, m.Prepare(t.Context(), p, w)) // waits
			if n := s.count("mount bad") - before; n != tc.tries {
				t.Errorf("%v: tried %d times, want %d", tc.err, n, tc.tries)
			}
			must(t, m.Clean(t.Context(), p.UID))
		}
	})
}

func TestAVolumeThatCannotBeTakenOverYetCountsOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		s.setFail("mount bad", errors.New("broken"))
		p := w.want(newPod(hostPath("bad", "stand:"), hostPath("good", "stand:")))
		w.setRunning(p.UID, true)
		for range 3 {
			f := failure(t, m.Prepare(t.Context(), p, w))
			time.Sleep(time.Until(f.NotBefore))
		}
		got := slices.DeleteFunc(slices.Clone(w.metered), func(s string) bool { return !strings.HasPrefix(s, "reconstructed") })
		slices.Sort(got)
		if !slices.Equal(got, []string{"reconstructed false", "reconstructed true"}) {
			t.Errorf("counted: %q", got)
		}
		s.setFail("mount bad", nil)
		must(t, m.Clean(t.Context(), p.UID))
		w.clean()
	})
}

func TestAChangedObjectEndsTheBackOff(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *stand, m *manager.Manager) {
		p := w.want(newPod(configMap("conf", "web")))
		broken := filepath.Join(w.root, "pods/uid-1/volumes/kubernetes.io~configmap/conf")
		w.setConfigMap("web", map[string]string{"a": "1"})
		must(t, os.MkdirAll(filepath.Dir(broken), 0o750))
		must(t, os.WriteFile(broken, nil, 0o600)) // no directory can be made there
		for range 3 {
			if f := failure(t, m.Prepare(t.Context(), p, w)); f.NotBefore.IsZero() {
				t.Errorf("got %+v", f)
			}
		}
		must(t, os.Remove(broken))
		failure(t, m.Prepare(t.Context(), p, w)) // that isn't known
		w.setConfigMap("web", map[string]string{"a": "2"})
		must(t, m.Prepare(t.Context(), p, w))
		must(t, m.Clean(t.Context(), p.UID))
	})
}

func TestCleaningUpBesideAMountThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		p, resume := w.want(newPod(hostPath("nfs", "stand:"), hostPath("other", "stand:"))), s.hang(t, "mount nfs")
		defer resume()
		failure(t, m.Prepare(t.Context(), p, w))
		for range 2 {
			start := time.Now()
			err := m.Clean(t.Context(), p.UID)
			if err == nil || !strings.Contains(err.Error(), `volume "nfs": `) || !strings.Contains(err.Error(), "still being mounted after") {
				t.Fatalf("got %v", err)
			}
			if took := time.Since(start); took != 10*time.Second {
				t.Errorf("it took %v", took)
			}
		}
		if s.count("unmount other") != 1 || s.count("unmount nfs") != 0 {
			t.Errorf("calls: %v", s.calls)
		}
		must(t, m.Prepare(t.Context(), w.want(namedPod("b", "uid-b", hostPath("x", "stand:"))), w))
		must(t, m.Clean(t.Context(), "uid-b"))
		resume()
		must(t, m.Clean(t.Context(), p.UID))
		w.clean() // also what came to be mounted in the end
	})
}

// A pull, or anything else that can be given up, is.
func TestCleaningUpGivesUpWhatIsUnderWay(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		s.await = "mount image"
		p := w.want(newPod(hostPath("image", "stand:")))
		failure(t, m.Prepare(t.Context(), p, w))
		start := time.Now()
		must(t, m.Clean(t.Context(), p.UID))
		if took := time.Since(start); took != 0 {
			t.Errorf("it took %v", took)
		}
		if slices.Contains(w.metered, "test.example/stand volume_mount true") {
			t.Errorf("what was given up counts as failed: %v", w.metered)
		}
		w.clean()
	})
}

func TestCleaningUpBesideAnUnmountThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		p, resume := w.want(newPod(hostPath("nfs", "stand:"), emptyDir("data", ""))), s.hang(t, "unmount nfs")
		defer resume()
		must(t, m.Prepare(t.Context(), p, w))
		err := m.Release(t.Context(), p.UID)
		if err == nil || !strings.Contains(err.Error(), `volume "nfs": still being unmounted after 10s`) {
			t.Fatalf("got %v", err)
		}
		if _, err := os.Lstat(filepath.Join(w.root, "pods/uid-1/volumes/kubernetes.io~empty-dir/data")); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the other volume: %v", err)
		}
		// Whoever asks doesn't wait longer than it wants to.
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := m.Clean(ctx, p.UID); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
		if n := s.count("unmount nfs"); n != 1 {
			t.Errorf("unmounted %d times", n)
		}
		resume()
		must(t, m.Clean(t.Context(), p.UID))
		w.clean()
	})
}

func TestTheEndIsNotHeldUp(t *testing.T) {
	w, s := newWorld(t), newStand()
	synctest.Test(t, func(t *testing.T) {
		s.entered, w.changed = make(chan string, 100), wake.NewKeyed[pod.Object]()
		c := w.config()
		c.Plugins = []volume.Plugin{s}
		m := manager.New(c, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = m.Run(ctx)
		}()
		p, resume := w.want(newPod(hostPath("nfs", "stand:"))), s.hang(t, "mount nfs")
		defer resume()
		failure(t, m.Prepare(t.Context(), p, w))
		start := time.Now()
		cancel()
		<-ended
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A file system that really hangs: what is asked of it waits in the kernel.
func TestAFileSystemThatDoesNotAnswer(t *testing.T) {
	w := newWorld(t)
	c := w.config()
	c.Early, c.Patience, c.Stop = time.Second, 2*time.Second, 50*time.Millisecond
	m, stop := w.start(c)
	share := t.TempDir()
	server := mounttest.Mount(t, share)
	dead := w.want(namedPod("dead", "uid-dead", typedHostPath("share", share, v1.HostPathDirectory), emptyDir("data", "")))
	must(t, m.Prepare(t.Context(), w.want(namedPod("early", "uid-early", typedHostPath("share", share, v1.HostPathDirectory))), w))
	server.Hang()
	if f := failure(t, m.Prepare(t.Context(), dead, w)); !strings.Contains(f.Message, "still being mounted after 1s") {
		t.Errorf("got %+v", f)
	}
	server.AwaitWaiting(t, 1)
	if f := failure(t, m.Prepare(t.Context(), dead, w)); !strings.HasSuffix(f.Message, "the file system doesn't answer") || !strings.Contains(f.Message, share) {
		t.Errorf("got %+v", f)
	}
	// A part of a volume that was there before.
	early := w.pod("uid-early")
	early.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "share", MountPath: "/share", SubPath: mounttest.File}}
	_, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: early, Container: "main"})
	if f := failure(t, err); !strings.Contains(f.Message, "still being made ready for a container") || f.Permanent {
		t.Errorf("got %+v", f)
	}
	// All others go on.
	other := w.want(namedPod("other", "uid-other", emptyDir("data", ""), emptyDir("ram", v1.StorageMediumMemory), hostPath("node", share)))
	other.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/d", SubPath: "x"}, {Name: "node", MountPath: "/n"}}
	must(t, m.Prepare(t.Context(), other, w))
	if _, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: other, Container: "main"}); err != nil {
		t.Error(err)
	}
	must(t, m.Clean(t.Context(), other.UID))
	if err := m.Clean(t.Context(), dead.UID); err == nil || !strings.Contains(err.Error(), `volume "share": `) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(filepath.Join(w.root, "pods/uid-dead/volumes/kubernetes.io~empty-dir/data")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the other volume of the pod: %v", err)
	}
	stop() // which doesn't wait for the file system either
	server.Resume()
	eventually(t, "what hung came to its end", func() bool {
		stacks := make([]byte, 1<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "operations.(*Group).run")
	})
	next, _ := w.start(w.config())
	for _, p := range []*v1.Pod{dead, early} {
		must(t, next.Clean(t.Context(), p.UID))
	}
	w.clean()
	if _, err := os.Stat(filepath.Join(share, mounttest.File)); err != nil {
		t.Errorf("the share: %v", err)
	}
}
