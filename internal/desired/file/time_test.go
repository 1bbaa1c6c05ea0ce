package file

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// fakeWatcher is a watcher that reports what a test says.
type fakeWatcher struct {
	events    chan filewatch.Event
	exhausted atomic.Bool
}

func (w *fakeWatcher) Arm() error {
	if w.exhausted.Load() {
		return errors.New("can't watch: no more of it")
	}
	return nil
}

func (w *fakeWatcher) Events() <-chan filewatch.Event { return w.events }
func (w *fakeWatcher) Close()                         {}

const every = 20 * time.Second

// begin runs a source of a directory, in the bubble's time, with a watcher that the
// test speaks for.
func begin(t *testing.T, dir string, w watcher) *sourcetest.Recorder {
	sink := sourcetest.NewRecorder()
	s := New(Config{Path: dir, Every: every}, sourcetest.NewReader(pod.SourceFile),
		manifeststore.NewStore(t.TempDir(), "", pod.SourceFile), sink, logr.Discard())
	s.watch = func(string) watcher { return w }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return sink
}

// put writes a file, last changed now in the bubble's time.
func put(t *testing.T, path, text string) {
	t.Helper()
	err := os.WriteFile(path, []byte(text), 0o600)
	if err == nil {
		err = os.Chtimes(path, time.Now(), time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
}

func pods(sink *sourcetest.Recorder) []string {
	synctest.Wait()
	r, _ := sink.Last()
	return sourcetest.Pods(r)
}

func expect(t *testing.T, sink *sourcetest.Recorder, want ...string) {
	t.Helper()
	if got := pods(sink); !slices.Equal(got, want) {
		t.Errorf("pods %q, want %q", got, want)
	}
}

// Where nothing can be watched, rescans find changes; a file has to stay unchanged for longer, because nothing reports
// that it was closed.
func TestWithoutEventsRescansFindChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := &fakeWatcher{events: make(chan filewatch.Event)}
		w.exhausted.Store(true)
		sink := begin(t, dir, w)
		time.Sleep(every / 2)
		put(t, filepath.Join(dir, "web.yaml"), sourcetest.Manifest("web", "app:1"))
		time.Sleep(every/2 - time.Millisecond)
		expect(t, sink)
		time.Sleep(2 * time.Millisecond)
		expect(t, sink, "web-node1=app:1")

		put(t, filepath.Join(dir, "db.yaml"), sourcetest.Manifest("db", "app:1"))
		w.events <- filewatch.Event{Op: filewatch.Rescan}
		time.Sleep(openUnchangedFor - time.Millisecond)
		expect(t, sink, "web-node1=app:1")
		w.exhausted.Store(false)
		time.Sleep(2 * time.Millisecond)
		expect(t, sink, "db-node1=app:1", "web-node1=app:1")

		w.events <- filewatch.Event{Op: filewatch.Rescan} // it can be watched
		time.Sleep(time.Second)
		put(t, filepath.Join(dir, "c.yaml"), sourcetest.Manifest("c", "app:1"))
		w.events <- filewatch.Event{Name: "c.yaml", Op: filewatch.Done}
		expect(t, sink, "c-node1=app:1", "db-node1=app:1", "web-node1=app:1")
	})
}

func TestAFileBeingWrittenIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "web.yaml")
		w := &fakeWatcher{events: make(chan filewatch.Event)}
		sink := begin(t, dir, w)
		for range 20 {
			put(t, path, sourcetest.Manifest("web", "half")) // good, but not all of it
			w.events <- filewatch.Event{Name: "web.yaml", Op: filewatch.Writing}
			time.Sleep(openUnchangedFor / 2)
			expect(t, sink)
		}
		put(t, path, sourcetest.Manifest("web", "whole"))
		w.events <- filewatch.Event{Name: "web.yaml", Op: filewatch.Done}
		time.Sleep(passEvery)
		expect(t, sink, "web-node1=whole")
	})
}

// A writer may stop without ever closing the file.
func TestAFileThatIsNeverClosedIsReadOnceItStaysUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := &fakeWatcher{events: make(chan filewatch.Event)}
		sink := begin(t, dir, w)
		put(t, filepath.Join(dir, "web.yaml"), sourcetest.Manifest("web", "app:1"))
		w.events <- filewatch.Event{Name: "web.yaml", Op: filewatch.Writing}
		time.Sleep(openUnchangedFor - time.Millisecond)
		expect(t, sink)
		time.Sleep(2 * time.Millisecond)
		expect(t, sink, "web-node1=app:1")
	})
}

func TestDoneFileIsReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		w := &fakeWatcher{events: make(chan filewatch.Event)}
		sink := begin(t, dir, w)
		time.Sleep(time.Second)
		at := time.Now()
		put(t, filepath.Join(dir, "web.yaml"), sourcetest.Manifest("web", "app:1"))
		w.events <- filewatch.Event{Name: "web.yaml", Op: filewatch.Done}
		expect(t, sink, "web-node1=app:1")
		if took := time.Since(at); took != 0 {
			t.Errorf("it took %v, want no wait after a quiet time", took)
		}
		put(t, filepath.Join(dir, "db.yaml"), sourcetest.Manifest("db", "app:1"))
		w.events <- filewatch.Event{Name: "db.yaml", Op: filewatch.Done}
		expect(t, sink, "web-node1=app:1")
		time.Sleep(passEvery)
		expect(t, sink, "db-node1=app:1", "web-node1=app:1")
	})
}

func TestAFileIsGoneWhenItStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "web.yaml")
		put(t, path, sourcetest.Manifest("web", "app:1"))
		time.Sleep(time.Second)
		w := &fakeWatcher{events: make(chan filewatch.Event)}
		sink := begin(t, dir, w)
		expect(t, sink, "web-node1=app:1")
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		w.events <- filewatch.Event{Name: "web.yaml", Op: filewatch.MovedAway}
		time.Sleep(goneAfter - time.Millisecond)
		expect(t, sink, "web-node1=app:1")
		time.Sleep(2*time.Millisecond + passEvery)
		expect(t, sink)
	})
}

// A rescan reads no file that didn't change, save those whose times may lie.
func TestRescanReadsOnlyWhatChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		old, young := filepath.Join(dir, "old.yaml"), filepath.Join(dir, "young.yaml")
		put(t, old, sourcetest.Manifest("old", "app:1"))
		time.Sleep(time.Minute)
		put(t, young, sourcetest.Manifest("young", "app:1"))
		sink := begin(t, dir, &fakeWatcher{events: make(chan filewatch.Event)})
		time.Sleep(unchangedFor + passEvery)
		expect(t, sink, "old-node1=app:1", "young-node1=app:1")

		info, err := os.Stat(old)
		if err != nil {
			t.Fatal(err)
		}
		f := &seenFile{read: true, version: versionOf(info), readAt: time.Now()}
		if !f.isRead(info) {
			t.Error("an old file counts as changed")
		}
		info, err = os.Stat(young)
		if err != nil {
			t.Fatal(err)
		}
		f = &seenFile{read: true, version: versionOf(info), readAt: time.Now()}
		if f.isRead(info) {
			t.Error("a file that was read right after its change counts as unchanged")
		}
		f.dirty, f.readAt = true, time.Now().Add(time.Hour)
		if f.isRead(info) {
			t.Error("a file that an event was about counts as unchanged")
		}
	})
}

// A file that was written just before the start has to stay unchanged first.
func TestFirstReportIsComplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "a.yaml"), sourcetest.Manifest("a", "app:1"))
		time.Sleep(time.Minute)
		put(t, filepath.Join(dir, "b.yaml"), sourcetest.Manifest("b", "app:1"))
		sink := begin(t, dir, &fakeWatcher{events: make(chan filewatch.Event)})
		sink.Wait(t, "the first report", func(desired.Report) bool { return true })
		if got := sourcetest.Pods(sink.All()[0]); len(got) != 2 {
			t.Errorf("the first report has %q only", got)
		}
	})
}
