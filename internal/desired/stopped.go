package desired

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// holds are the pods that don't run though a source has them. It is replaced as a whole, never changed.
type holds struct {
	all  bool
	pods map[types.NamespacedName]Hold
}

func (h *holds) has(d *pod.Desired) bool {
	_, held := h.pods[types.NamespacedName{Namespace: d.Pod.Namespace, Name: d.Pod.Name}]
	return held || h.all
}

// Hold says that a person has stopped the pod of this name. It outlives the agent, and the pod's manifest.
type Hold struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Restart says that the pod is started again once nothing of it is left.
	Restart bool `json:"restart,omitempty"`
}

// stoppedVersion is the format's version.
const stoppedVersion = 1

// Stops are the pods that a person has stopped: the one writer of what the Merger knows of them, and of the file that
// keeps it. Safe for concurrent use.
type Stops struct {
	path     string
	merger   *Merger
	starting func(names ...types.NamespacedName) error
	// mu is held while the file is written, so that writes are in order.
	mu sync.Mutex
}

// NewStops returns the stops of the merger's pods, which the file path keeps. starting is called before pods run again,
// and keeps them from that by an error; nil for nothing.
func NewStops(path string, m *Merger, starting func(names ...types.NamespacedName) error) *Stops {
	return &Stops{path: path, merger: m, starting: starting}
}

// Restore takes over what an earlier agent kept. It is to be called before sources report. A file that can't be
// understood is renamed to end in ".corrupt", and the error says that all pods run.
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
	s.merger.hold(func(h holds) holds { return holds{h.all, held} })
	return nil
}

// Stop has the pods of these names stopped, and kept so. With restart they are started again once Started is called.
func (s *Stops) Stop(restart bool, names ...types.NamespacedName) error {
	return s.change(func(held map[types.NamespacedName]Hold) {
		for _, n := range names {
			held[n] = Hold{Namespace: n.Namespace, Name: n.Name, Restart: restart}
		}
	})
}

// Start has the pods of these names run again.
func (s *Stops) Start(names ...types.NamespacedName) error {
	if s.starting != nil {
		if err := s.starting(names...); err != nil {
			return err
		}
	}
	return s.change(func(held map[types.NamespacedName]Hold) {
		for _, n := range names {
			delete(held, n)
		}
	})
}

// StopAll has all pods stopped, until the agent ends.
func (s *Stops) StopAll() {
	s.merger.hold(func(h holds) holds { return holds{true, h.pods} })
}

// List returns what is stopped, sorted.
func (s *Stops) List() []Hold { return s.merger.holds() }

// change writes what change makes of the holds down, then has it be so.
func (s *Stops) change(change func(map[types.NamespacedName]Hold)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := map[types.NamespacedName]Hold{}
	for _, h := range s.merger.holds() {
		held[types.NamespacedName{Namespace: h.Namespace, Name: h.Name}] = h
	}
	change(held)
	if err := checkpoint.WriteFile(s.path, stoppedVersion, sortedHolds(held)); err != nil {
		return fmt.Errorf("which pods are stopped can't be kept on disk, and nothing was changed: %w", err)
	}
	s.merger.hold(func(h holds) holds { return holds{h.all, held} })
	return nil
}

func sortedHolds(held map[types.NamespacedName]Hold) []Hold {
	return slices.SortedFunc(maps.Values(held), func(a, b Hold) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

func (m *Merger) hold(change func(holds) holds) {
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
