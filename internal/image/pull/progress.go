package pull

import (
	"context"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/runtime/engine"
)

// Progress is the state of a queued or running pull.
type Progress struct {
	// Image is the image's name with its tag.
	Image string
	// Since is when the pull was requested. Began is when it started; zero while it is queued.
	Since, Began time.Time
	// Position is the place in the queue, from 1; 0 if the pull is running.
	Position int
	// Failures counts previous consecutive failures.
	Failures int
	// Transfer is the pull's progress, nil if it is unavailable.
	Transfer *engine.Transfer
}

// activePull is a queued or running pull.
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

func (m *Manager) start(p *activePull) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p.began = time.Now()
}

func (m *Manager) leave(p *activePull) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.active = slices.DeleteFunc(m.active, func(other *activePull) bool { return other == p })
}

// Progress reports the state of all pulls, in the order of their requests. Reading the transfer progress costs the
// runtime a little: call it for users' requests, not in loops.
func (m *Manager) Progress(ctx context.Context) []Progress {
	return m.progress(ctx, func(string) bool { return true })
}

// ProgressOf reports the state of the pulls of one image, given as in a container spec.
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
