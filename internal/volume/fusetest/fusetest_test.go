package fusetest_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/sys/mountinfo"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume/fusetest"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Run(m)) }

func TestItIsAFolderWithOneFile(t *testing.T) {
	dir := t.TempDir()
	fusetest.Mount(t, dir)
	if got, err := os.ReadFile(filepath.Join(dir, fusetest.File)); err != nil || string(got) != fusetest.Content {
		t.Errorf("read %q, %v", got, err)
	}
	names, err := os.ReadDir(dir)
	if err != nil || len(names) != 1 || names[0].Name() != fusetest.File || names[0].IsDir() {
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
		_, err := os.Stat(filepath.Join(dir, fusetest.File))
		done <- err
	}()
	return done
}

func released(err error) bool {
	return errors.Is(err, unix.ENOTCONN) || errors.Is(err, unix.ECONNABORTED)
}

func TestAHungStatGoesOnWhenItIsResumed(t *testing.T) {
	dir := t.TempDir()
	s := fusetest.Mount(t, dir)
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
	s := fusetest.Mount(t, dir)
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
		s := fusetest.Mount(t, dir)
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

func TestUnmountedByTheTestItself(t *testing.T) {
	dir := t.TempDir()
	fusetest.Mount(t, dir)
	if err := unix.Unmount(dir, 0); err != nil {
		t.Fatal(err)
	}
}
