package lockfile_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/lockfile"
)

const holderDir = "LOCKFILE_TEST_HOLD"

// Called with holderDir set, the test program is a process that holds the lock
// until its input ends.
func TestMain(m *testing.M) {
	dir := os.Getenv(holderDir)
	if dir == "" {
		os.Exit(m.Run())
	}
	if _, err := lockfile.Acquire(dir); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("held")
	bufio.NewReader(os.Stdin).ReadString('\n')
}

func startHolder(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), holderDir+"="+dir)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill() // it may have ended already
		cmd.Wait()
	})
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the holder said %q", line)
	}
	return cmd
}

func TestSecondProcessIsRefused(t *testing.T) {
	dir := t.TempDir()
	holder := startHolder(t, dir)

	_, err := lockfile.Acquire(dir)
	var held *lockfile.HeldError
	if !errors.As(err, &held) || held.PID != holder.Process.Pid {
		t.Fatalf("got %v, want it held by %d", err, holder.Process.Pid)
	}
	if !strings.Contains(err.Error(), strconv.Itoa(holder.Process.Pid)) || !strings.Contains(err.Error(), "--root-dir") {
		t.Errorf("the error helps nobody: %v", err)
	}

	// Killed without a chance to clean up, the holder leaves no lock behind.
	if err := holder.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	holder.Wait()
	lock, err := lockfile.Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

func TestAcquireReleaseAcquire(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, lockfile.Name)
	if err := os.WriteFile(path, []byte("123456789 of an older agent\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		lock, err := lockfile.Acquire(dir)
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := os.ReadFile(path); string(text) != fmt.Sprintln(os.Getpid()) {
			t.Errorf("the lock holds %q", text)
		}
		if _, err := lockfile.Acquire(dir); err == nil {
			t.Error("taken twice in one process")
		}
		if err := lock.Release(); err != nil {
			t.Error(err)
		}
	}
}

func TestChildrenDontHoldTheLock(t *testing.T) {
	dir := t.TempDir()
	lock, err := lockfile.Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		child.Process.Kill()
		child.Wait()
	}()
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	again, err := lockfile.Acquire(dir)
	if err != nil {
		t.Fatalf("a child has inherited the lock: %v", err)
	}
	if err := again.Release(); err != nil {
		t.Error(err)
	}
}

func TestPlantedLinkIsNotFollowed(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(target, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, filepath.Join(dir, lockfile.Name)); err != nil {
		t.Fatal(err)
	}
	if _, err := lockfile.Acquire(dir); err == nil {
		t.Error("a symbolic link was followed")
	}
	if text, _ := os.ReadFile(target); string(text) != "data" {
		t.Errorf("the link's target was changed to %q", text)
	}
}

func TestMissingDir(t *testing.T) {
	if _, err := lockfile.Acquire(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// Only its number can't be told then.
func TestAFullDiskCanBeLocked(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 4096), 0o600); err != nil {
		t.Fatal(err)
	}
	lock, err := lockfile.Acquire(dir)
	if err != nil {
		t.Fatal(err)
	}
	var held *lockfile.HeldError
	if _, err := lockfile.Acquire(dir); !errors.As(err, &held) || held.PID != 0 {
		t.Errorf("locked twice: %v", err)
	}
	if err := lock.Release(); err != nil {
		t.Error(err)
	}
}

// TestReadOnlyDisk: on a disk that can't be written, only a process that ends what runs gets the lock, and only one at a
// time.
func TestReadOnlyDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	release := func(l *lockfile.Lock, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
	release(lockfile.Acquire(dir))
	if err := unix.Mount("none", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := lockfile.Acquire(dir); !errors.Is(err, unix.EROFS) {
		t.Errorf("an agent gets the lock: %v", err)
	}
	first, err := lockfile.AcquireToEnd(dir)
	if err != nil {
		t.Fatal(err)
	}
	var held *lockfile.HeldError
	if _, err := lockfile.AcquireToEnd(dir); !errors.As(err, &held) || held.PID != 0 {
		t.Errorf("a second process gets the lock: %v", err)
	}
	release(first, nil)
	release(lockfile.AcquireToEnd(dir))
}
