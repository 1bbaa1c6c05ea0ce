package lockfile_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/lockfile"
)

func mustAcquire(t *testing.T, path string) *lockfile.Named {
	t.Helper()
	n, err := lockfile.AcquireNamed(t.Context(), path, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func mustRelease(t *testing.T, n *lockfile.Named) {
	t.Helper()
	if err := n.Release(); err != nil {
		t.Error(err)
	}
}

// waiter is somebody who asked for the lock.
type waiter struct {
	// waits has a line when it has to wait.
	waits  chan string
	cancel context.CancelFunc
	lock   *lockfile.Named
	done   chan error
}

func startWaiter(t *testing.T, path string) *waiter {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &waiter{waits: make(chan string, 100), cancel: cancel, done: make(chan error, 1)}
	log := funcr.New(func(_, args string) { w.waits <- args }, funcr.Options{})
	go func() {
		var err error
		w.lock, err = lockfile.AcquireNamed(ctx, path, log)
		w.done <- err
	}()
	t.Cleanup(cancel)
	return w
}

// got ends the wait for the lock, and lets it go.
func (w *waiter) got(t *testing.T) {
	t.Helper()
	if err := <-w.done; err != nil {
		t.Fatal(err)
	}
	mustRelease(t, w.lock)
}

func TestNamedIsFree(t *testing.T) {
	defer goleak.VerifyNone(t)
	path := filepath.Join(t.TempDir(), "kubelet.lock")
	mustRelease(t, mustAcquire(t, path))
	if info, err := os.Stat(path); err != nil || info.Mode() != 0o600 {
		t.Errorf("the lock file is %v, %v", info, err)
	}
	if err := os.WriteFile(path, []byte("somebody's"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustRelease(t, mustAcquire(t, path))
	if text, err := os.ReadFile(path); err != nil || string(text) != "somebody's" {
		t.Errorf("the lock file holds %q, %v", text, err)
	}
}

func TestNamedWaitsForAProcess(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	path := filepath.Join(dir, lockfile.Name)
	holder := startHolder(t, dir)
	w := startWaiter(t, path)
	if line := <-w.waits; !strings.Contains(line, path) {
		t.Errorf("logs %q", line)
	}
	begin := time.Now()
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.got(t)
	if took := time.Since(begin); took > 800*time.Millisecond {
		t.Errorf("that the holder died is noticed after %s: not by an event", took)
	}
	if len(w.waits) > 0 {
		t.Errorf("logs once more: %q", <-w.waits)
	}
}

func TestNamedWaitIsGivenUp(t *testing.T) {
	defer goleak.VerifyNone(t)
	path := filepath.Join(t.TempDir(), "kubelet.lock")
	holder := mustAcquire(t, path)
	w := startWaiter(t, path)
	<-w.waits
	w.cancel()
	if err := <-w.done; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), path) {
		t.Errorf("says %v", err)
	}
	mustRelease(t, holder)
}

// A lock can be let go without an event: by LOCK_UN.
func TestNamedUnlockedButOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubelet.lock")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	w := startWaiter(t, path)
	<-w.waits
	if err := unix.Flock(int(f.Fd()), unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	w.got(t)
}

// Who waits for a file that was replaced would hold a lock that nobody else sees.
func TestNamedIsReplacedMeanwhile(t *testing.T) {
	for name, replace := range map[string]func(path string) error{
		"another moved there": func(path string) error {
			return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
		},
		"removed": os.Remove,
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			path := filepath.Join(t.TempDir(), "kubelet.lock")
			holder := mustAcquire(t, path)
			w := startWaiter(t, path)
			<-w.waits
			if err := replace(path); err != nil {
				t.Fatal(err)
			}
			if err := <-w.done; err != nil {
				t.Fatal(err)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
				t.Errorf("the file at the path isn't locked: %v", err)
			}
			mustRelease(t, w.lock)
			mustRelease(t, holder)
		})
	}
}

// One agent hands the node over to the next, and that to a third.
func TestHandOver(t *testing.T) {
	defer goleak.VerifyNone(t)
	path := filepath.Join(t.TempDir(), "kubelet.lock")
	holder := mustAcquire(t, path)
	for range 3 {
		contended := make(chan error, 1)
		go func() { contended <- holder.Contended(t.Context()) }()
		next := startWaiter(t, path)
		if err := <-contended; err != nil {
			t.Fatal(err)
		}
		mustRelease(t, holder)
		if err := <-next.done; err != nil {
			t.Fatal(err)
		}
		holder = next.lock
	}
	mustRelease(t, holder)
}

func TestContended(t *testing.T) {
	open := func(path string) error {
		f, err := os.Open(path)
		return errors.Join(err, f.Close())
	}
	for name, c := range map[string]struct {
		do   func(path string) error
		want bool
	}{
		"opened":  {open, true},
		"removed": {os.Remove, true},
		"moved":   {func(path string) error { return os.Rename(path, path+".old") }, true},
		"replaced": {func(path string) error {
			return errors.Join(os.WriteFile(path+".new", nil, 0o600), os.Rename(path+".new", path))
		}, true},
		"looked at":    {func(path string) error { _, err := os.Stat(path); return err }, false},
		"mode changed": {func(path string) error { return os.Chmod(path, 0o640) }, false},
		"nothing":      {func(string) error { return nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			path := filepath.Join(t.TempDir(), "kubelet.lock")
			n := mustAcquire(t, path)
			defer mustRelease(t, n)
			// What happens before anybody asks isn't lost either.
			if err := c.do(path); err != nil {
				t.Fatal(err)
			}
			ctx := t.Context()
			if !c.want {
				short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
				defer cancel()
				ctx = short
			}
			err := n.Contended(ctx)
			if c.want && err != nil || !c.want && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("returns %v", err)
			}
		})
	}
}

func TestNamedBadPath(t *testing.T) {
	dir := t.TempDir()
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := errors.Join(os.Symlink(filepath.Join(dir, "target"), link), unix.Mkfifo(fifo, 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none", "lock"): "the directory to create it in",
		dir:                                "is a directory",
		link:                               "symbolic link",
		fifo:                               "isn't a regular file",
	} {
		_, err := lockfile.AcquireNamed(t.Context(), path, logr.Discard())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("says %v, not %q", err, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, "target")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the link was followed: %v", err)
	}
}
