package lockfile_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/deckhand-node/deckhand/internal/host/lockfile"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch/filewatchtest"
)

// TestUnwatched: where nothing can be watched, the lock is taken all the same, and handed over to a process that came
// before its file could be watched, and to one that came after.
func TestUnwatched(t *testing.T) {
	filewatchtest.Run(t, filewatchtest.Limits{}, func(t *testing.T) {
		defer goleak.VerifyNone(t)
		dir := t.TempDir()
		acquire := func(name string) (n *lockfile.Named, path string, contended chan error) {
			path, contended = filepath.Join(dir, name), make(chan error, 1)
			return mustAcquire(t, path), path, contended
		}
		await := func(n *lockfile.Named, contended chan error) {
			t.Helper()
			go func() { contended <- n.Contended(t.Context()) }()
		}
		yield := func(n *lockfile.Named, contended chan error) {
			t.Helper()
			if err := <-contended; err != nil {
				t.Fatal(err)
			}
			mustRelease(t, n)
		}
		open := func(path string) {
			t.Helper()
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = f.Close() })
		}

		waited, path, waitedFor := acquire("waited for")
		w := startWaiter(t, path)
		<-w.waits
		if waited.Unwatched() == nil {
			t.Error("it is watched")
		}
		moved, path, movedAway := acquire("moved")
		if err := os.Rename(path, path+".old"); err != nil {
			t.Fatal(err)
		}
		before, path, openedBefore := acquire("opened before")
		open(path)
		after, path, openedAfter := acquire("opened after")

		await(waited, waitedFor)
		await(moved, movedAway)
		yield(moved, movedAway)
		yield(waited, waitedFor)
		w.got(t)

		await(before, openedBefore)
		await(after, openedAfter)
		filewatchtest.Set(t, filewatchtest.Limits{Instances: 2, Watches: 2})
		for _, watches := filewatchtest.Count(t); watches < 2; _, watches = filewatchtest.Count(t) {
			time.Sleep(time.Millisecond)
		}
		yield(before, openedBefore)
		select {
		case err := <-openedAfter:
			t.Errorf("contended by nobody: %v", err)
		default:
		}
		open(path)
		yield(after, openedAfter)
	})
}
