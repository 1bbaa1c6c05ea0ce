package rootdir

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func newLayout(t *testing.T) Runtime {
	t.Helper()
	l, err := NewRuntime(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(l.Run()); err != nil {
			t.Error(err)
		}
		// Others may be using it.
		_ = os.Remove(l.RunBase())
	})
	return l
}

func TestSocketsFit(t *testing.T) {
	short, err := NewRuntime("/var/lib/deckhand")
	if err != nil {
		t.Fatal(err)
	}
	if short.Socket() != "/var/lib/deckhand/containerd/containerd.sock" {
		t.Errorf("the socket is %s", short.Socket())
	}
	long, err := NewRuntime("/" + strings.Repeat("long/", 30))
	if err != nil {
		t.Fatal(err)
	}
	paths := []string{short.Socket(), short.TTRPCSocket(), long.Socket(), long.TTRPCSocket()}
	for n := range 50 { // around the limit
		l, err := NewRuntime("/" + strings.Repeat("r", 50+n))
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, l.Socket(), l.TTRPCSocket())
	}
	for _, path := range paths {
		if len(path) > 104 {
			t.Errorf("%s has %d characters", path, len(path))
		}
	}
	// A limit of containerd's own.
	if len(long.ShimSockets()) > 42 {
		t.Errorf("%s has %d characters", long.ShimSockets(), len(long.ShimSockets()))
	}
}

func TestClaim(t *testing.T) {
	for name, c := range map[string]struct {
		present string
		want    bool
	}{
		"new":       {"", true},
		"images":    {"images", true},
		"lock":      {"deckhand.lock", true},
		"strangers": {"precious", false},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLayout(t)
			if err := os.MkdirAll(filepath.Join(l.Root, c.present), 0o755); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if err := l.Claim(); err != nil {
					t.Fatal(err)
				}
			}
			if l.Claimed() != c.want {
				t.Errorf("claimed: %v", l.Claimed())
			}
		})
	}
}

// TestBootOnAFullDisk: an agent comes up after a reboot though the boot's record can't be replaced, and doesn't forget the
// state of this boot at its next start.
func TestBootOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("deckhand-test", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	const first, second = "0e8a4d1c-3b52-4a86-9a5e-6f1f0c3d2b1a", "7c1d9e42-80a7-4d0b-b6a3-19f2e5d4c3b2"
	for _, recorded := range []bool{true, false} {
		l, err := NewRuntime(filepath.Join(dir, strconv.FormatBool(recorded)))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(l.Run()) })
		if err := l.Make(); err != nil {
			t.Fatal(err)
		}
		if recorded {
			if _, err := l.forgetUnless(first, false); err != nil {
				t.Fatal(err)
			}
		}
		f, err := os.Create(filepath.Join(dir, "filler"))
		for ; err == nil; _, err = f.Write(make([]byte, 4<<10)) {
		}
		f.Close()
		for try := range 2 {
			if rebooted, err := l.forgetUnless(second, false); err != nil || rebooted != (recorded && try == 0) {
				t.Errorf("a record %v, start %d: rebooted %v, %v", recorded, try, rebooted, err)
			}
		}
		if err := os.Remove(f.Name()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestForgetEarlierBoot(t *testing.T) {
	l := newLayout(t)
	if err := l.Make(); err != nil {
		t.Fatal(err)
	}
	stale := []string{filepath.Join(l.State(), "x"), filepath.Join(l.CNIState(), "x"), filepath.Join(l.Run(), "x")}
	kept := filepath.Join(l.Store(), "x")
	for _, path := range append(stale, kept) {
		if err := os.MkdirAll(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	const first, second = "0e8a4d1c-3b52-4a86-9a5e-6f1f0c3d2b1a", "7c1d9e42-80a7-4d0b-b6a3-19f2e5d4c3b2"
	for _, step := range []struct {
		boot     string
		rebooted bool
		// written is what the record says before.
		written string
		inUse   bool
	}{{boot: first}, {boot: first}, {boot: first, written: "what another version wrote"}, {boot: first}, {boot: first, written: second, inUse: true}, {boot: first},
		{boot: second, rebooted: true}, {boot: second}} {
		if step.written != "" {
			if err := os.WriteFile(l.BootID(), []byte(step.written), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		rebooted, err := l.forgetUnless(step.boot, step.inUse)
		if err != nil || rebooted != step.rebooted {
			t.Errorf("boot %s: rebooted %v, error %v", step.boot, rebooted, err)
		}
		for _, path := range stale {
			if _, err := os.Stat(path); (err == nil) != (step.boot == first) {
				t.Errorf("boot %s: %s: %v", step.boot, path, err)
			}
		}
	}
	for _, path := range []string{kept, l.ShimSockets()} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}
