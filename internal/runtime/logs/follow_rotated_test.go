package logs

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// gate is a client that takes nothing until it is opened.
type gate struct {
	*follower
	arrived wake.Slot
	open    chan struct{}
}

func (g *gate) Write(b []byte) (int, error) {
	g.arrived.Wake()
	<-g.open
	return g.follower.Write(b)
}

// A client that takes its time finds everything in order, although the log was rotated
// several times, compressed and removed meanwhile.
func TestFollowIsLateByManyRotations(t *testing.T) {
	r, dir := newLog(t)
	path := filepath.Join(dir, "0.log")
	write(t, dir, "0.log", line("a"))
	instances := newInstances(Instance{})
	f := &follower{t: t, more: wake.NewSlot(), done: make(chan error, 1)}
	g := &gate{follower: f, arrived: wake.NewSlot(), open: make(chan struct{})}
	go func() {
		f.done <- r.Copy(t.Context(), g, Request{Log: web, Options: Options{Follow: true, Tail: -1}}, instances)
	}()
	<-g.arrived
	write(t, dir, "0.log", line("b"))
	for i, name := range []string{"0.log.20260102-030401", "0.log.20260102-030402", "0.log.20260102-030403"} {
		if err := os.Rename(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		write(t, dir, "0.log", line([]string{"c", "d", "e"}[i]))
	}
	// What is being followed is compressed and removed, as is what came after it.
	pack(t, dir, "0.log.20260102-030401.gz", line("a")+line("b"))
	pack(t, dir, "0.log.20260102-030402.gz", line("c"))
	for _, name := range []string{"0.log.20260102-030401", "0.log.20260102-030402"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	close(g.open)
	f.await("a\nb\nc\nd\ne\n")
	instances.set(Instance{Ended: true})
	f.ended("a\nb\nc\nd\ne\n")
}

// Where the runtime makes no new file, the old one gets its name back.
func TestFollowARotationThatFailed(t *testing.T) {
	r, dir := newLog(t)
	path, aside := filepath.Join(dir, "0.log"), filepath.Join(dir, "0.log.20260102-030405")
	write(t, dir, "0.log", line("a"))
	instances := newInstances(Instance{})
	f := start(t, r, Request{Options: all}, instances)
	f.await("a\n")
	for _, text := range []string{"b", "c"} {
		if err := os.Rename(path, aside); err != nil {
			t.Fatal(err)
		}
		write(t, dir, filepath.Base(aside), line(text))
		if err := os.Rename(aside, path); err != nil {
			t.Fatal(err)
		}
	}
	f.await("a\nb\nc\n")
	instances.set(Instance{Ended: true})
	f.ended("a\nb\nc\n")
}

// The runtime lets go of the old file after it has begun the new one.
func TestFollowWaitsForTheOldFilesLastWriter(t *testing.T) {
	r, dir := newLog(t)
	path := filepath.Join(dir, "0.log")
	old, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		t.Fatal(err)
	}
	f := start(t, r, Request{Options: all}, newInstances(Instance{}))
	if err := os.Rename(path, path+".20260102-030405"); err != nil {
		t.Fatal(err)
	}
	write(t, dir, "0.log", line("new"))
	if _, err := old.WriteString(line("old")); err != nil {
		t.Fatal(err)
	}
	f.await("old\n")
	if _, err := old.WriteString(entry("stdout", "P", "and ")); err != nil {
		t.Fatal(err)
	}
	old.Close()
	f.await("old\nand new\n")
}

func TestFollowShowsWhatMayBeAPrompt(t *testing.T) {
	r, dir := newLog(t)
	write(t, dir, "0.log", entry("stdout", "P", "Password: "))
	f := start(t, r, Request{Options: all}, newInstances(Instance{}))
	f.await("Password: ")
	write(t, dir, "0.log", entry("stdout", "F", "")+line("thanks"))
	f.await("Password: \nthanks\n")
}

func TestFollowALogThatIsYetToCome(t *testing.T) {
	r, dir := newLog(t)
	instances := newInstances(Instance{})
	f := start(t, r, Request{Options: all}, instances)
	write(t, dir, "0.log", line("a"))
	instances.set(Instance{})
	f.await("a\n")
	instances.set(Instance{Ended: true})
	f.ended("a\n")

	for name, now := range map[string]Instance{
		"one that has ended": {Attempt: 1, Ended: true},
		"an earlier one":     {Attempt: 2},
		"none will come":     {Final: true},
	} {
		err := r.Copy(t.Context(), f, Request{Log: web, Attempt: 1, Options: Options{Follow: true}}, newInstances(now))
		if !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want fs.ErrNotExist", name, err)
		}
	}
}

// Of the instances from one on, the first that has a log.
func TestOneInstanceOrLater(t *testing.T) {
	r, dir := newLog(t)
	write(t, dir, "3.log", line("third"))
	write(t, dir, "4.log", line("fourth"))
	var begun []int
	req := Request{Attempt: 1, OrLater: true, Options: all, Begun: func(attempt int) { begun = append(begun, attempt) }}
	if got := copied(t, r, req); got != "third\n" || !slices.Equal(begun, []int{3}) {
		t.Errorf("got %q of %v", got, begun)
	}
	begun = nil
	f := start(t, r, req, newInstances(Instance{Attempt: 4}))
	f.ended("third\n")
	if !slices.Equal(begun, []int{3}) {
		t.Errorf("followed %v", begun)
	}
	req.Attempt, req.Log = 5, web
	if err := r.Copy(t.Context(), f, req, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no later one: got %v, want fs.ErrNotExist", err)
	}
}

// The last line of an instance that has no end is ended where the next one begins.
func TestOnwardEndsLines(t *testing.T) {
	r, dir := newLog(t)
	write(t, dir, "0.log", entry("stdout", "P", "panic"))
	write(t, dir, "1.log", line("starting"))
	if got, want := copied(t, r, Request{Onward: true, Options: all}), "panic\nstarting\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
