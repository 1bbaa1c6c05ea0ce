package desired

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/pod"
)

func named(name string) types.NamespacedName {
	return types.NamespacedName{Namespace: "default", Name: name}
}

// stopping is a merger with the pods web and db, and what stops them, as after the start of an agent.
func stopping(t *testing.T, path string) (*Merger, *Stops) {
	t.Helper()
	m := New(logr.Discard(), pod.SourceFile)
	s := NewStops(path, m, nil, nil)
	if err := s.Restore(); err != nil {
		t.Fatal(err)
	}
	m.Report(reportOf(pod.SourceFile, claim(pod.SourceFile, "a", "web", "1", 1), claim(pod.SourceFile, "b", "db", "2", 2)))
	return m, s
}

func expect(t *testing.T, m *Merger, runs, stopped string) {
	t.Helper()
	set := m.Current()
	if names(set) != runs || names(&Set{Pods: set.Stopped}) != stopped {
		t.Errorf("%q run and %q are stopped, want %q and %q", names(set), names(&Set{Pods: set.Stopped}), runs, stopped)
	}
	for _, d := range set.Stopped {
		if set.Get(d.Pod.UID) != nil || !set.Has(d.Pod.UID) {
			t.Errorf("pod %s is stopped, and the set has it otherwise", d.Pod.Name)
		}
	}
}

func TestStoppedPodsOutliveTheAgent(t *testing.T) {
	path := filepath.Join(t.TempDir(), "made", "stopped.json")
	m, s := stopping(t, path)
	changed, end := m.Subscribe()
	defer end()
	if err := s.Stop(false, named("web"), named("unknown")); err != nil {
		t.Fatal(err)
	}
	<-changed
	expect(t, m, "db@b", "web@a")
	if err := s.Stop(true, named("db")); err != nil {
		t.Fatal(err)
	}
	expect(t, m, "", "db@b web@a")

	m, s = stopping(t, path)
	expect(t, m, "", "db@b web@a")
	want := []Hold{{"default", "db", true}, {"default", "unknown", false}, {"default", "web", false}}
	if got := s.List(); !slices.Equal(got, want) {
		t.Errorf("stopped are %v, want %v", got, want)
	}
	// A pod that takes the name while it is stopped doesn't run either.
	m.Report(reportOf(pod.SourceFile, claim(pod.SourceFile, "c", "unknown", "3", 3), claim(pod.SourceFile, "b", "db", "2", 2)))
	expect(t, m, "", "db@b unknown@c")
	if err := s.Start(named("unknown"), named("db")); err != nil {
		t.Fatal(err)
	}
	expect(t, m, "db@b unknown@c", "")
}

func TestAllAreStoppedUntilTheAgentEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stopped.json")
	m, s := stopping(t, path)
	s.StopAll()
	expect(t, m, "", "db@b web@a")
	if err := s.Start(named("web")); err != nil {
		t.Fatal(err)
	}
	if !m.Current().AllStopped {
		t.Error("starting one ended the stop of all")
	}
	m, _ = stopping(t, path)
	expect(t, m, "db@b web@a", "")
}

func TestADamagedFileStopsNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "stopped.json")
	if err := os.WriteFile(path, []byte(`{"version":1,"sum":"x","data":[{"namespace":"default","name":"web"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := NewStops(path, New(logr.Discard()), nil, nil)
	if err := s.Restore(); err == nil || len(s.List()) != 0 {
		t.Errorf("restored %v, error %v", s.List(), err)
	}
	if _, err := os.Stat(path + ".corrupt"); err != nil {
		t.Error(err)
	}
	if err := s.Restore(); err != nil {
		t.Errorf("the next agent fails, too: %v", err)
	}
}

func TestWhatCannotBeKeptIsNotStopped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	m := New(logr.Discard(), pod.SourceFile)
	m.Report(reportOf(pod.SourceFile, claim(pod.SourceFile, "a", "web", "1", 1)))
	if err := NewStops(filepath.Join(file, "stopped.json"), m, nil, nil).Stop(false, named("web")); err == nil {
		t.Error("a stop that isn't on disk is taken")
	}
	expect(t, m, "web@a", "")
}

// TestStopOnAFullDisk: a pod is stopped although that can't be saved, because it may be the one that fills the disk. The
// reserve is given up for it, and what couldn't be saved is when there is room.
func TestStopOnAFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("deckhand-test", dir, "tmpfs", 0, "size=20m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	fill := func() {
		f, err := os.OpenFile(filepath.Join(dir, "filler"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		for ; err == nil; _, err = f.Write(make([]byte, 4<<10)) {
		}
		f.Close()
	}
	reserve := room.NewReserve(dir)
	made, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reserve.Run(made); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "stopped.json")
	saved := func() []Hold {
		other := NewStops(path, New(logr.Discard()), nil, nil)
		if err := other.Restore(); err != nil {
			t.Error(err)
		}
		return other.List()
	}
	s := NewStops(path, New(logr.Discard()), nil, reserve)
	fill()
	if err := errors.Join(s.Stop(false, named("a")), s.Save()); err != nil || len(saved()) != 1 {
		t.Errorf("saved %v, %v, want the first stop", saved(), err)
	}
	for range 32 { // nothing of the reserve is left
		_ = reserve.Spend(func() error { return unix.ENOSPC })
	}
	fill()
	if err := s.Stop(false, named("b")); err != nil || len(s.List()) != 2 {
		t.Errorf("stopped %v, %v", s.List(), err)
	}
	if err := s.Save(); !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "start again with the agent") {
		t.Errorf("what isn't saved: %v", err)
	}
	if err := s.Start(named("a")); !errors.Is(err, unix.ENOSPC) || len(s.List()) != 2 {
		t.Errorf("a start that can't be saved: %v, still stopped %v", err, s.List())
	}
	if err := errors.Join(s.Stop(true, named("c")), s.Start(named("c"))); err != nil || len(s.List()) != 2 {
		t.Errorf("a restart: %v, stopped %v", err, s.List())
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "filler")), s.Save()); err != nil || len(saved()) != 2 {
		t.Errorf("with room: saved %v, %v", saved(), err)
	}
}
