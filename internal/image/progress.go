package image

import (
	"context"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/image/backoff"
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
	// Transfer is how far it is, nil if nobody can tell.
	Transfer *Transfer
}

// line is a pull's line in the book of those under way.
type line struct {
	key          backoff.Key
	since, began time.Time
}

func (m *Manager) join(k backoff.Key) *line {
	l := &line{key: k, since: time.Now()}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.under = append(m.under, l)
	return l
}

func (m *Manager) begin(l *line) {
	m.mu.Lock()
	defer m.mu.Unlock()
	l.began = time.Now()
}

func (m *Manager) leave(l *line) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.under = slices.DeleteFunc(m.under, func(other *line) bool { return other == l })
}

// Progress tells what all pulls are doing, in the order in which they were asked for.
// Asking how far they are costs the runtime a little: it is for people, not for loops.
func (m *Manager) Progress(ctx context.Context) []Progress {
	return m.progress(ctx, func(string) bool { return true })
}

// ProgressOf tells what the pulls of one image are doing, as a container's spec names it.
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
	for _, l := range m.under {
		p := Progress{Image: l.key.Image, Since: l.since, Began: l.began}
		if l.began.IsZero() {
			waiting++
			p.Position = waiting
		}
		if !wanted(p.Image) {
			continue
		}
		if s, ok := m.failures.Get(l.key); ok {
			p.Failures = s.Failures
		}
		out = append(out, p)
	}
	return out
}
