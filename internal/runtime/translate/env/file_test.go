package env_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
)

// volume makes a directory beside a file that isn't the pod's.
func volume(t *testing.T) (dir, outside string) {
	t.Helper()
	top := t.TempDir()
	dir, outside = filepath.Join(top, "volume"), filepath.Join(top, "outside")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, outside, "A='host'")
	return dir, outside
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRead(t *testing.T) {
	dir, _ := volume(t)
	write(t, filepath.Join(dir, "a/b.env"), "A='1'\n")
	must(t, os.Symlink("a/b.env", filepath.Join(dir, "link")))
	must(t, os.Symlink("../a", filepath.Join(dir, "a/here")))
	must(t, os.Symlink("a", filepath.Join(dir, "..data"))) // what writers that replace all at once leave
	for _, path := range []string{"a/b.env", "./a//b.env", "link", "a/here/b.env", "..data/b.env"} {
		if vars, err := env.ReadFile(dir, path); err != nil || len(vars) != 1 || vars["A"] != "1" {
			t.Errorf("%s: %v, %v", path, vars, err)
		}
	}
}

func TestReadWhatIsNotThere(t *testing.T) {
	dir, _ := volume(t)
	must(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
	for _, path := range []string{"none", "none/none", "dangling"} {
		if _, err := env.ReadFile(dir, path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	_, err := env.ReadFile(filepath.Join(dir, "gone"), "f")
	if !errors.Is(err, fs.ErrNotExist) || strings.Contains(err.Error(), dir) {
		t.Errorf("a volume that isn't there: %v", err)
	}
}

func TestReadStaysInTheVolume(t *testing.T) {
	dir, outside := volume(t)
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	must(t, os.Symlink(outside, filepath.Join(dir, "absolute")))
	must(t, os.Symlink("../outside", filepath.Join(dir, "relative")))
	must(t, os.Symlink("..", filepath.Join(dir, "up")))
	must(t, os.Symlink("/proc/self/root"+outside, filepath.Join(dir, "magic")))
	must(t, os.Symlink("loop", filepath.Join(dir, "loop")))
	volumeLink := filepath.Join(filepath.Dir(dir), "volumelink")
	must(t, os.Symlink(filepath.Dir(dir), volumeLink))
	for _, tc := range [][2]string{
		{dir, outside}, {dir, "../outside"}, {dir, "d/../../outside"}, {dir, "absolute"}, {dir, "relative"}, {dir, "up/outside"}, {dir, "magic"}, {dir, "loop"},
		{volumeLink, "outside"},
	} {
		vars, err := env.ReadFile(tc[0], tc[1])
		if err == nil || vars != nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), tc[1]) {
			t.Errorf("%s: %v, %v", tc[1], vars, err)
		}
	}
}

// A volume may be a mount (an emptyDir in memory). What is mounted below it is none of it.
func TestReadAndMounts(t *testing.T) {
	dir, _ := volume(t)
	inner := filepath.Join(dir, "inner")
	for _, at := range []string{dir, inner} {
		must(t, os.MkdirAll(at, 0o700))
		if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=64k"); err != nil {
			t.Fatalf("this test mounts, so it needs root: %v", err)
		}
		t.Cleanup(func() { must(t, unix.Unmount(at, 0)) })
		write(t, filepath.Join(at, "f"), "A='1'")
	}
	if vars, err := env.ReadFile(dir, "f"); err != nil || vars["A"] != "1" {
		t.Errorf("in a mount: %v, %v", vars, err)
	}
	if vars, err := env.ReadFile(dir, "inner/f"); err == nil || !strings.Contains(err.Error(), "leads out of its volume") {
		t.Errorf("in a mount below the volume: %v, %v", vars, err)
	}
}

// What isn't a regular file is neither waited for nor opened: a pod may make FIFOs,
// sockets and devices.
func TestReadOnlyRegularFiles(t *testing.T) {
	dir, _ := volume(t)
	must(t, os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	must(t, unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	must(t, unix.Mknod(filepath.Join(dir, "device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 5)))) // /dev/zero
	must(t, unix.Mknod(filepath.Join(dir, "socket"), unix.S_IFSOCK|0o600, 0))
	for _, path := range []string{"directory", "fifo", "device", "socket"} {
		if _, err := env.ReadFile(dir, path); err == nil || !strings.Contains(err.Error(), `env file "`+path+`" is not a regular file`) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := env.ReadFile(dir, "."); err == nil {
		t.Error("the volume itself was read")
	}
}

// A lease would have an open wait until its holder lets go, or for 45 s.
func TestReadDoesNotWaitForLeases(t *testing.T) {
	dir, _ := volume(t)
	path := filepath.Join(dir, "f")
	write(t, path, "A='1'")
	holder, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer holder.Close()
	if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
		t.Fatal(err)
	}
	if _, err := env.ReadFile(dir, "f"); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("unexpected error: %v", err)
	}
}

func TestReadIsBounded(t *testing.T) {
	dir, _ := volume(t)
	path := filepath.Join(dir, "huge")
	write(t, path, "")
	must(t, os.Truncate(path, 1<<40))
	if _, err := env.ReadFile(dir, "huge"); err == nil || !strings.Contains(err.Error(), "larger than the 64 KiB") {
		t.Errorf("unexpected error: %v", err)
	}
	write(t, filepath.Join(dir, "bad"), "\nA=s3cret")
	if _, err := env.ReadFile(dir, "bad"); err == nil || err.Error() != `env file "bad": line 2: the value isn't in single quotes: write NAME='value'` {
		t.Errorf("unexpected error: %v", err)
	}
}

// Reading what another process goes on writing over and renaming ends, with what was
// written at one time or the other.
func TestReadWhileItIsReplaced(t *testing.T) {
	dir, outside := volume(t)
	write(t, filepath.Join(dir, "f"), "A='1'")
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			next := filepath.Join(dir, "next")
			_ = os.Symlink(outside, next)
			_ = os.Rename(next, filepath.Join(dir, "f"))
			_ = os.WriteFile(next, []byte("A='1'"), 0o600)
			_ = os.Rename(next, filepath.Join(dir, "f"))
		}
	}()
	for range 2000 {
		if vars, err := env.ReadFile(dir, "f"); err == nil && vars["A"] == "host" {
			t.Fatal("a file outside the volume was read")
		}
	}
	close(stop)
	<-done
}
