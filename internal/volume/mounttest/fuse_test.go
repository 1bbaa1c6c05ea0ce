package mounttest_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) {
	os.Exit(mounttest.Main(func() int { return mounttest.Run(m) }))
}

func TestItIsADirWithOneFile(t *testing.T) {
	dir := t.TempDir()
	mounttest.Mount(t, dir)
	if got, err := os.ReadFile(filepath.Join(dir, mounttest.File)); err != nil || string(got) != mounttest.Content {
		t.Errorf("read %q, %v", got, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 || names[0].Name() != mounttest.File || names[0].IsDir() {
		t.Errorf("listed %v, %v", names, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "other")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that isn't there: %v", err)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil || st.Files != 2 {
		t.Errorf("statfs: %+v, %v", st, err)
	}
}

// stat asks for the file in the background.
func stat(dir string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := os.Stat(filepath.Join(dir, mounttest.File))
		done <- err
	}()
	return done
}

func released(err error) bool {
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
}

func TestAHungStatGoesOnWhenItIsResumed(t *testing.T) {
	dir := t.TempDir()
	s := mounttest.Mount(t, dir)
	for range 3 {
		s.Hang()
		s.Hang() // hangs already
		done := stat(dir)
		s.AwaitWaiting(t, 1)
		select {
		case err := <-done:
			t.Fatalf("the hung file system answered: %v", err)
		default:
		}
		s.Resume()
		s.Resume()
		if err := <-done; err != nil {
			t.Fatalf("after it was resumed: %v", err)
		}
	}
}

func TestAbortReleasesAHungStat(t *testing.T) {
	dir := t.TempDir()
	s := mounttest.Mount(t, dir)
	s.Hang()
	done := stat(dir)
	s.AwaitWaiting(t, 1)
	if err := s.Abort(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !released(err) {
		t.Errorf("the one who waited got %v", err)
	}
	if err := <-stat(dir); !released(err) {
		t.Errorf("after the abort: %v", err)
	}
}

func TestTheEndOfATestReleasesEverything(t *testing.T) {
	defer goleak.VerifyNone(t)
	dir := t.TempDir()
	var done <-chan error
	t.Run("hung", func(t *testing.T) {
		s := mounttest.Mount(t, dir)
		s.Hang()
		done = stat(dir)
		s.AwaitWaiting(t, 1)
		// Something mounted below it, as a pod may have.
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, ""); err != nil {
			t.Fatal(err)
		}
	})
	if err := <-done; err == nil {
		t.Error("the one who waited got an answer")
	}
	if ok, err := mountinfo.Mounted(dir); ok || err != nil {
		t.Errorf("still mounted: %v, %v", ok, err)
	}
}

// TestAKilledTestGoes, and the server with it, while files of the hung file system are open and asked for.
func TestAKilledTestGoes(t *testing.T) {
	const directory = "FUSETEST_KILLED"
	if dir := os.Getenv(directory); dir != "" { // the one that is killed
		s := mounttest.Mount(t, dir)
		f, err := os.Open(filepath.Join(dir, mounttest.File))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		s.Hang()
		done := stat(dir)
		s.AwaitWaiting(t, 1)
		fmt.Println("hung")
		<-done
		return
	}
	dir, temp := t.TempDir(), t.TempDir()
	t.Cleanup(func() { // what it can't do itself
		left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(filepath.Dir(dir)))
		if err != nil {
			t.Error(err)
		}
		for _, m := range left {
			_ = unix.Unmount(m.Mountpoint, unix.MNT_DETACH)
		}
	})
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), directory+"="+dir, "TMPDIR="+temp)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "hung\n" {
		t.Errorf("it says %q, %v", line, err)
	}
	// Should it not go, this ends the connection and what waits for it.
	abort := time.AfterFunc(30*time.Second, func() { _ = unix.Unmount(dir, unix.MNT_FORCE) })
	_ = cmd.Process.Kill()
	_ = cmd.Wait() // it was killed
	if err := <-stat(dir); !released(err) {
		t.Errorf("after the server has gone: %v", err)
	}
	if !abort.Stop() {
		t.Error("it didn't go by itself")
	}
}

func TestUnmountedByTheTestItself(t *testing.T) {
	dir := t.TempDir()
	mounttest.Mount(t, dir)
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
}
