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

// TestUnwatched: where nothing can be watched, the lock is taken all the same, and handed over as soon as its file can be
// watched.
func TestUnwatched(t *testing.T) {
	filewatchtest.Run(t, filewatchtest.Limits{}, func(t *testing.T) {
		defer goleak.VerifyNone(t)
		path := filepath.Join(t.TempDir(), lockfile.Name)
		n := mustAcquire(t, path)
		w := startWaiter(t, path)
		<-w.waits
		if n.Unwatched() == nil {
			t.Error("it is watched")
		}
		contended := make(chan error, 1)
		if err := os.Rename(path, path+".old"); err != nil {
			t.Fatal(err)
		}
		go func() { contended <- n.Contended(t.Context()) }()
		if err := <-contended; err != nil {
			t.Fatal(err)
		}
		w.got(t) // the new file's lock
		mustRelease(t, n)

		n = mustAcquire(t, path)
		go func() { contended <- n.Contended(t.Context()) }()
		filewatchtest.Set(t, filewatchtest.Limits{Instances: 1, Watches: 1})
		for _, watches := filewatchtest.Count(t); watches == 0; _, watches = filewatchtest.Count(t) {
			time.Sleep(time.Millisecond)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := <-contended; err != nil {
			t.Fatal(err)
		}
		mustRelease(t, n)
	})
}
