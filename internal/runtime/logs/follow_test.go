package logs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch/filewatchtest"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// fakeInstances is a container that a test moves through its life.
type fakeInstances struct {
	mu      sync.Mutex
	now     Instance
	changed wake.Slot
}

func newInstances(now Instance) *fakeInstances {
	return &fakeInstances{now: now, changed: wake.NewSlot()}
}

func (f *fakeInstances) Current() Instance {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *fakeInstances) Changed() <-chan struct{} { return f.changed }

func (f *fakeInstances) set(now Instance) {
	f.mu.Lock()
	f.now = now
	f.mu.Unlock()
	f.changed.Wake()
}

// follower runs a Copy and lets a test await its output.
type follower struct {
	t    *testing.T
	mu   sync.Mutex
	text strings.Builder
	more wake.Slot
	done chan error
	stop context.CancelFunc
}

func (f *follower) Write(b []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.text.Write(b)
	f.more.Wake()
	return len(b), nil
}

func (f *follower) got() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.text.String()
}

// await waits until the whole output is want.
func (f *follower) await(want string) {
	f.t.Helper()
	for f.got() != want {
		select {
		case <-f.more:
		case <-f.t.Context().Done():
			f.t.Fatalf("got %q, want %q", f.got(), want)
		case err := <-f.done:
			f.t.Fatalf("ended (%v) with %q, want %q", err, f.got(), want)
		}
	}
}

// ended waits for the end of the Copy.
func (f *follower) ended(want string) {
	f.t.Helper()
	if err := <-f.done; err != nil {
		f.t.Fatal(err)
	}
	if f.got() != want {
		f.t.Fatalf("got %q, want %q", f.got(), want)
	}
}

func start(t *testing.T, r *Reader, req Request, instances Instances) *follower {
	ctx, stop := context.WithCancel(t.Context())
	f := &follower{t: t, more: wake.NewSlot(), done: make(chan error, 1), stop: stop}
	req.Log, req.Follow = web, true
	go func() { f.done <- r.Copy(ctx, f, req, instances) }()
	t.Cleanup(stop)
	return f
}

// awaitWatch waits until a follower has found its place in the log.
func awaitWatch(t *testing.T, r *Reader) {
	t.Helper()
	for {
		if _, n := filewatchtest.Count(t); n > 0 {
			return
		}
		if t.Context().Err() != nil {
			t.Fatal("nobody follows")
		}
		runtime.Gosched()
	}
}

func line(text string) string { return "2026-01-02T03:04:05Z stdout F " + text + "\n" }

var all = Options{Tail: -1}

func TestFollowUntilTheContainerEnds(t *testing.T) {
	r, dir := newLog(t)
	write(t, dir, "0.log", line("a"))
	instances := newInstances(Instance{})
	f := start(t, r, Request{Options: all}, instances)
	f.await("a\n")
	write(t, dir, "0.log", line("b")[:20])
	write(t, dir, "0.log", line("b")[20:]+line("c"))
	f.await("a\nb\nc\n")
	write(t, dir, "0.log", line("last"))
	instances.set(Instance{Ended: true})
	f.ended("a\nb\nc\nlast\n")
}

func TestFollowReadsWhatTheRuntimeWritesAfterTheEnd(t *testing.T) {
	r, dir := newLog(t)
	write(t, dir, "0.log", line("a"))
	instances := newInstances(Instance{Ended: true})
	f := start(t, r, Request{Options: all}, instances)
	f.await("a\n")
	write(t, dir, "0.log", line("late"))
	f.ended("a\nlate\n")
}

func TestFollowTailNothingShowsOnlyWhatIsNew(t *testing.T) {
	r, dir := newLog(t)
	write(t, dir, "0.log", line("old")+line("new")[:25])
	f := start(t, r, Request{Options: Options{Tail: 0}}, newInstances(Instance{}))
	awaitWatch(t, r)
	write(t, dir, "0.log", line("new")[25:])
	f.await("new\n")
}

func TestFollowAcrossRotation(t *testing.T) {
	r, dir := newLog(t)
	path := filepath.Join(dir, "0.log")
	write(t, dir, "0.log", line("a"))
	instances := newInstances(Instance{})
	f := start(t, r, Request{Options: all}, instances)
	f.await("a\n")
	if err := os.Rename(path, path+".20260102"); err != nil {
		t.Fatal(err)
	}
	// The runtime writes to the renamed file until it is told to reopen.
	write(t, dir, "0.log.20260102", line("b"))
	f.await("a\nb\n")
	write(t, dir, "0.log.20260102", line("c"))
	write(t, dir, "0.log", line("longer"))
	f.await("a\nb\nc\nlonger\n")
	// Copied and truncated, as some rotators do: noticed while the file is shorter than it was.
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "0.log", line("e"))
	f.await("a\nb\nc\nlonger\ne\n")
}

func TestFollowOnwardToLaterInstances(t *testing.T) {
	r, dir := newLog(t)
	instances := newInstances(Instance{})
	f := start(t, r, Request{Onward: true, Options: all}, instances)
	write(t, dir, "0.log", line("first"))
	instances.set(Instance{})
	f.await("first\n")
	instances.set(Instance{Ended: true})
	// Instance 1 comes and goes, and its log is removed, before anybody looks.
	write(t, dir, "2.log", line("third"))
	instances.set(Instance{Attempt: 2})
	f.await("first\nthird\n")
	instances.set(Instance{Attempt: 2, Ended: true, Final: true})
	f.ended("first\nthird\n")
}

func TestFollowEndsWithItsContext(t *testing.T) {
	r, dir := newLog(t)
	write(t, dir, "0.log", line("a"))
	for _, onward := range []bool{false, true} {
		f := start(t, r, Request{Onward: onward, Options: all}, newInstances(Instance{}))
		f.await("a\n")
		f.stop()
		if err := <-f.done; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	}
	f := start(t, r, Request{Attempt: 1, Onward: true, Options: all}, newInstances(Instance{}))
	f.stop()
	if err := <-f.done; !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for an instance: got %v, want context.Canceled", err)
	}
}

func TestFollowEndsWhenTheReaderGoes(t *testing.T) {
	r, dir := newLog(t)
	write(t, dir, "0.log", line("a"))
	gone := errors.New("client went away")
	err := r.Copy(t.Context(), failing{gone}, Request{Log: web, Options: Options{Follow: true, Tail: -1}}, newInstances(Instance{}))
	if !errors.Is(err, gone) {
		t.Errorf("got %v, want %v", err, gone)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestFollowersShareOneWatcher(t *testing.T) {
	r, dir := newLog(t)
	write(t, dir, "0.log", line("a"))
	instances := []*fakeInstances{}
	followers := []*follower{}
	for range 5 {
		in := newInstances(Instance{})
		instances = append(instances, in)
		followers = append(followers, start(t, r, Request{Options: all}, in))
	}
	for _, f := range followers {
		f.await("a\n")
	}
	write(t, dir, "0.log", line("b"))
	if n, _ := filewatchtest.Count(t); n != 1 {
		t.Errorf("%d inotify instances", n)
	}
	for i, f := range followers {
		f.await("a\nb\n")
		instances[i].set(Instance{Ended: true})
		f.ended("a\nb\n")
	}
	if n, _ := filewatchtest.Count(t); n > 0 {
		t.Error("the inotify instance outlives the last follower")
	}
}

// TestFollowUnwatched: a log that can't be watched is followed all the same.
func TestFollowUnwatched(t *testing.T) {
	filewatchtest.Run(t, filewatchtest.Limits{}, func(t *testing.T) {
		r, dir := newLog(t)
		write(t, dir, "0.log", line("a"))
		in := newInstances(Instance{})
		f := start(t, r, Request{Options: all}, in)
		f.await("a\n")
		write(t, dir, "0.log", line("b"))
		f.await("a\nb\n")
		filewatchtest.Set(t, filewatchtest.Limits{Instances: 1, Watches: filewatchtest.Plenty})
		awaitWatch(t, r)
		write(t, dir, "0.log", line("c"))
		f.await("a\nb\nc\n")
		in.set(Instance{Ended: true})
		f.ended("a\nb\nc\n")
	})
}
