// Package reload takes in a configuration that has changed while the agent runs: all
// of it, or nothing. What may change without a restart is said by the table in
// config/fields; one changed field that may not keeps the others from being taken in too.
package reload

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/fields"
	"github.com/deckhand-node/deckhand/internal/config/paths"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Outcome is what became of a reload.
type Outcome string

// The outcomes; they are the values of a metric's label, too.
const (
	// Applied: the new configuration is in force.
	Applied Outcome = "applied"
	// Unchanged: it says what the one in force says.
	Unchanged Outcome = "unchanged"
	// Refused: it differs in fields that need a restart; nothing has changed.
	Refused Outcome = "refused"
	// Invalid: it can't be used or not be read; nothing has changed.
	Invalid Outcome = "invalid"
)

// Result is what came of one reload.
type Result struct {
	Outcome Outcome
	// Changed are the paths of all fields that differ, sorted; NeedRestart those of
	// them that can't change while the agent runs.
	Changed, NeedRestart []string
	// Before is what was in force before, Current what is now.
	Before, Current *config.Config
	// Err says why the configuration is Invalid.
	Err error
}

// Message says in a sentence what came of it, for a person.
func (r *Result) Message() string {
	switch r.Outcome {
	case Applied:
		return "the configuration was reloaded: " + strings.Join(r.Changed, ", ")
	case Unchanged:
		return "the configuration was read again: nothing in it has changed"
	case Refused:
		text := fmt.Sprintf("the changed configuration was not taken in: %s can't change while the agent runs: restart it", strings.Join(r.NeedRestart, ", "))
		if live := len(r.Changed) - len(r.NeedRestart); live > 0 {
			text += fmt.Sprintf(" (until then, %d other changes aren't in force either)", live)
		}
		return text
	default:
		return fmt.Sprintf("the changed configuration was not taken in, the one before stays in force: %v", r.Err)
	}
}

// Options are what a Reloader is made with.
type Options struct {
	// Load reads the configuration anew; old is the one in force. It must not
	// change anything.
	Load func(ctx context.Context, old *config.Config) (*config.Config, error)
	// Apply passes the fields that may change to those who act on them. It can't fail,
	// since the configuration has been validated.
	Apply func(*config.Config)
	// Begin and End frame each reload, for a service manager and whoever counts.
	Begin func()
	End   func(Result)
}

// Reloader holds the configuration in force, and is the only one who replaces it.
type Reloader struct {
	o       Options
	current atomic.Pointer[config.Config]
	// asked and changed have one slot each: wake-ups carry no data.
	asked, changed wake.Slot
}

// New returns a Reloader with the configuration that the agent starts with.
func New(start *config.Config, o Options) *Reloader {
	r := &Reloader{o: o, asked: wake.NewSlot(), changed: wake.NewSlot()}
	r.current.Store(start)
	return r
}

// Current returns the configuration in force. It must not be changed.
func (r *Reloader) Current() *config.Config { return r.current.Load() }

// Ask has the configuration read again soon, and the result reported in any case: a
// person, or a service manager, waits for that.
func (r *Reloader) Ask() { r.asked.Wake() }

// Look has it read again soon because its files may have changed. If that changes nothing,
// nothing is reported.
func (r *Reloader) Look() { r.changed.Wake() }

// Run reloads whenever it is asked to, until ctx ends.
func (r *Reloader) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.asked:
			r.o.Begin()
			r.o.End(r.reload(ctx))
		case <-r.changed:
			if result := r.reload(ctx); result.Outcome != Unchanged {
				r.o.Begin()
				r.o.End(result)
			}
		}
	}
}

func (r *Reloader) reload(ctx context.Context) Result {
	old := r.Current()
	next, err := r.o.Load(ctx, old)
	if err != nil {
		return Result{Outcome: Invalid, Before: old, Current: old, Err: err}
	}
	result := compare(old, next)
	switch result.Outcome {
	case Applied:
		// From here on nothing can fail. The new one is in force before it is applied:
		// who is woken by that reads it.
		r.current.Store(next)
		r.o.Apply(next)
	case Unchanged:
		r.current.Store(next) // the same values may come from other lines
	}
	result.Current = r.Current()
	return result
}

// compare says what to do about the difference of two configurations.
func compare(old, next *config.Config) Result {
	result := Result{Outcome: Unchanged, Before: old, Changed: paths.Diff(&old.Kubelet, &next.Kubelet)}
	if len(result.Changed) == 0 {
		return result
	}
	result.Outcome = Applied
	for _, path := range result.Changed {
		if f, known := fields.Of(path); !known || !f.Live {
			result.NeedRestart = append(result.NeedRestart, path)
		}
	}
	if len(result.NeedRestart) > 0 {
		result.Outcome = Refused
	}
	return result
}
