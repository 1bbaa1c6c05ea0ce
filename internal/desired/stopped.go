package desired

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// holds are the pods that don't run although a source has them. The value is replaced as a whole, never changed.
type holds struct {
	all  bool
	pods map[types.NamespacedName]Hold
}

func (h *holds) has(d *pod.Desired) bool {
	_, held := h.pods[types.NamespacedName{Namespace: d.Pod.Namespace, Name: d.Pod.Name}]
	return held || h.all
}

// Hold says that a user has stopped the pod of this name. It outlives the agent and the pod's manifest.
type Hold struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Restart says that the pod is started again once nothing of it is left.
	Restart bool `json:"restart,omitempty"`
}

// stoppedVersion is the version of the file's format.
const stoppedVersion = 1

// Stops are the pods that users have stopped. It is the only writer of the Merger's holds and of their file. It is
// safe for concurrent use.
type Stops struct {
	path     string
	merger   *Merger
	starting func(names ...types.NamespacedName) error
	reserve  *room.Reserve
	// mu is held while the file is written, so that writes are in order.
	mu sync.Mutex
	// unsaved is set while the disk is too full for the file.
	unsaved bool
}

// NewStops returns the stops of the merger's pods, which are stored in the file path. starting is called before stopped
// pods run again; if it returns an error, they stay stopped. It may be nil. reserve is released to save stops on a full
// disk.
func NewStops(path string, m *Merger, starting func(names ...types.NamespacedName) error,
	reserve *room.Reserve) *Stops {
	return &Stops{path: path, merger: m, starting: starting, reserve: reserve}
}

// Restore loads the holds that an earlier agent saved. It has to be called before sources report. An unreadable file
// is renamed to end in ".corrupt", and the error says that all pods run.
func (s *Stops) Restore() error {
	var list []Hold
	found, err := checkpoint.ReadFile(s.path, stoppedVersion, &list)
	if err != nil {
		return fmt.Errorf("which pods were stopped can't be read from %s, so that they are started: %w", s.path, err)
	}
	if !found {
		return nil
	}
	held := map[types.NamespacedName]Hold{}
	for _, h := range list {
		held[types.NamespacedName{Namespace: h.Namespace, Name: h.Name}] = h
	}
	s.merger.updateHolds(func(h holds) holds { return holds{h.all, held} })
	return nil
}

// Stop stops the pods of these names until Start. With restart, the pods are marked to be started again once they are
// gone. On a full disk the pods are stopped although the stop can't be saved, because their end may free space: call
// Save when they are gone.
func (s *Stops) Stop(restart bool, names ...types.NamespacedName) error {
	return s.change(true, func(held map[types.NamespacedName]Hold) {
		for _, n := range names {
			held[n] = Hold{Namespace: n.Namespace, Name: n.Name, Restart: restart}
		}
	})
}

// Resume marks a pod to be started again once it is gone, unless it is stopped already.
func (s *Stops) Resume(name types.NamespacedName) error {
	return s.change(false, func(held map[types.NamespacedName]Hold) {
		if _, stopped := held[name]; !stopped {
			held[name] = Hold{Namespace: name.Namespace, Name: name.Name, Restart: true}
		}
	})
}

// Save saves the stops that couldn't be saved before, because the disk was full.
func (s *Stops) Save() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.unsaved {
		return nil
	}
	err := s.write(s.merger.holds())
	if s.unsaved = err != nil; s.unsaved {
		return fmt.Errorf("the pods are stopped, but that can't be kept on disk, and they start again with the "+
			"agent: %w", room.Explain(err, s.path))
	}
	return nil
}

func (s *Stops) write(list []Hold) error {
	return s.reserve.Spend(func() error { return checkpoint.WriteFile(s.path, stoppedVersion, list) })
}

// Start starts the stopped pods of these names again.
func (s *Stops) Start(names ...types.NamespacedName) error {
	if s.starting != nil {
		if err := s.starting(names...); err != nil {
			return err
		}
	}
	restarting := !slices.ContainsFunc(s.merger.holds(), func(h Hold) bool {
		return !h.Restart && slices.Contains(names, types.NamespacedName{Namespace: h.Namespace, Name: h.Name})
	})
	// If the start of a pod that is being restarted can't be saved, the next agent restarts it once more.
	return s.change(restarting, func(held map[types.NamespacedName]Hold) {
		for _, n := range names {
			delete(held, n)
		}
	})
}

// StopAll stops all pods, until the agent ends.
func (s *Stops) StopAll() {
	s.reserve.Release()
	s.merger.updateHolds(func(h holds) holds { return holds{true, h.pods} })
}

// List returns the stopped pods, sorted.
func (s *Stops) List() []Hold { return s.merger.holds() }

// change calls the function change with a copy of the holds, saves the changed copy, and then puts it into effect. With
// force set, the copy takes effect even if the disk is too full to save it.
func (s *Stops) change(force bool, change func(map[types.NamespacedName]Hold)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[types.NamespacedName]Hold{}
	for _, h := range s.merger.holds() {
		held[types.NamespacedName{Namespace: h.Namespace, Name: h.Name}] = h
	}
	change(held)
	err := s.write(sortedHolds(held))
	if err != nil && !(force && atomicfile.DiskFull(err)) {
		return fmt.Errorf("which pods are stopped can't be kept on disk, and nothing was changed: %w", err)
	}
	s.unsaved = err != nil
	s.merger.updateHolds(func(h holds) holds { return holds{h.all, held} })
	return nil
}

func sortedHolds(held map[types.NamespacedName]Hold) []Hold {
	return slices.SortedFunc(maps.Values(held), func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func (m *Merger) updateHolds(change func(holds) holds) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.held = change(m.held)
	m.publish()
}

func (m *Merger) holds() []Hold {
	m.mu.Lock()
	defer m.mu.Unlock()
	return sortedHolds(m.held.pods)
}
