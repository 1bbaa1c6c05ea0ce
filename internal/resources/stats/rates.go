package stats

import (
	"context"
	"math"
	"time"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

const (
	// shortest is the minimum window of a rate if there is an older sample. longest is the maximum window: older
	// samples don't show the current rate.
	shortest, longest = time.Second, 2 * time.Minute
	// pause is the time between two readings if there is no older sample.
	pause = 80 * time.Millisecond
)

// rates computes the current CPU usage of groups from consecutive samples. Nothing is measured between samples.
type rates struct {
	known map[string]history
	// at is when the last sample was made.
	at time.Time
	// missing are the groups of the last sample that have no earlier reading, and so no rate yet.
	missing []*Group
}

type point struct {
	at    time.Time
	usage uint64
}

// history contains a group's readings. The group's rate is computed from base to the current reading.
type history struct{ base, last point }

// update sets the rates of a sample for groups with an earlier reading.
func (r *rates) update(s *Sample) {
	known := make(map[string]history, len(r.known))
	r.missing = r.missing[:0]
	add := func(g *Group, made time.Time) {
		if g.CPU == nil || g.Path == "" {
			return
		}
		now := point{g.At, g.CPU.Usage}
		h, ok := r.known[g.Path]
		switch {
		case ok && h.last.usage <= now.usage && now.at.Sub(h.last.at) <= longest:
			if now.at.Sub(h.last.at) >= shortest {
				h.base, h.last = h.last, now
			}
			g.Rate = rate(h.base, now)
		case made.After(r.at) && s.At.Sub(r.at) <= longest && made.Before(now.at):
			// The group was created after the last sample, when its usage was 0.
			h = history{base: point{made, 0}, last: now}
			g.Rate = rate(h.base, now)
		default:
			h = history{base: now, last: now}
			r.missing = append(r.missing, g)
		}
		known[g.Path] = h
	}
	add(&s.Node, time.Time{})
	for i := range s.System {
		add(&s.System[i].Group, time.Time{})
	}
	for i := range s.Pods {
		p := &s.Pods[i]
		add(&p.Group, p.Started)
		for j := range p.Containers {
			add(&p.Containers[j].Group, p.Containers[j].Started)
		}
	}
	r.known, r.at = known, s.At
}

// second waits for pause, reads the groups without an earlier reading again, and sets their rates.
func (r *rates) second(ctx context.Context, reader *counters.Reader) error {
	if len(r.missing) == 0 {
		return nil
	}
	select {
	case <-time.After(pause):
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, g := range r.missing {
		f, err := reader.Read(g.Path, counters.JustCPU)
		if err != nil || f.CPU.Usage < g.CPU.Usage {
			continue // the group was removed
		}
		h := r.known[g.Path]
		h.last = point{f.At, f.CPU.Usage}
		g.Rate = rate(h.base, h.last)
		r.known[g.Path] = h
	}
	clear(r.missing) // they point into the sample
	return nil
}

// rate returns the average CPU usage between two readings, in billionths of a CPU; nil if they have none.
func rate(from, to point) *uint64 {
	took := to.at.Sub(from.at)
	if took <= 0 || to.usage < from.usage {
		return nil
	}
	v := uint64(math.Round(float64(to.usage-from.usage) / took.Seconds()))
	return &v
}
