package pull

import (
	"context"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/runtime/engine"
)

// Progress is what a pull that is under way, or waits for its turn, is doing.
type Progress struct {
	// Image is its name, with its tag.
	Image string
	// Since is when it was asked for, Began when its turn came; zero while it waits.
	Since, Began time.Time
	// Position is its place in the queue, from 1; 0 for one that is under way.
	Position int
	// Failures is how often it failed before, in a row.
	Failures int
	// Transfer is how far it is, nil if that isn't known.
	Transfer *engine.Transfer
}

// activePull is a pull that is under way, or waits for its turn.
type activePull struct {
	key          backoffKey
	since, began time.Time
}

func (m *Manager) join(k backoffKey) *activePull {
	p := &activePull{key: k, since: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active = append(m.active, p)
	return p
}

func (m *Manager) begin(p *activePull) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.began = time.Now()
}

func (m *Manager) leave(p *activePull) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active = slices.DeleteFunc(m.active, func(other *activePull) bool { return other == p })
}

// Progress reports what all pulls are doing, in the order in which they were asked for.
// Asking how far they are costs the runtime a little: it is for people, not for loops.
func (m *Manager) Progress(ctx context.Context) []Progress {
	return m.progress(ctx, func(string) bool { return true })
}

// ProgressOf reports what the pulls of one image are doing, as a container's spec names it.
func (m *Manager) ProgressOf(ctx context.Context, image string) []Progress {
	name, err := withTag(image)
	if err != nil {
		return nil
	}
	return m.progress(ctx, func(other string) bool { return other == name })
}

func (m *Manager) progress(ctx context.Context, wanted func(image string) bool) []Progress {
	out := m.snapshot(wanted)
	if m.cfg.Transfers == nil {
		return out
	}
	for i := range out {
		if out[i].Began.IsZero() {
			continue
		}
		if t, ok := m.cfg.Transfers.Transfer(ctx, out[i].Image); ok {
			out[i].Transfer = &t
		}
	}
	return out
}

func (m *Manager) snapshot(wanted func(image string) bool) []Progress {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Progress
	waiting := 0
	for _, pull := range m.active {
		p := Progress{Image: pull.key.Image, Since: pull.since, Began: pull.began}
		if pull.began.IsZero() {
			waiting++
			p.Position = waiting
		}
		if !wanted(p.Image) {
			continue
		}
		if s, ok := m.failures.Get(pull.key); ok {
			p.Failures = s.Failures
		}
		out = append(out, p)
	}
	return out
}
