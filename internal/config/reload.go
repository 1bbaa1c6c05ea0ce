package config

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/deckhand-node/deckhand/internal/config/fields"
	"github.com/deckhand-node/deckhand/internal/config/paths"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// ReloadOutcome is what became of a reload.
type ReloadOutcome string

// The outcomes; they are the values of a metric's label, too.
const (
	// Applied: the new configuration is in force.
	Applied ReloadOutcome = "applied"
	// Unchanged: it says what the one in force says.
	Unchanged ReloadOutcome = "unchanged"
	// Refused: it differs in fields that need a restart; nothing has changed.
	Refused ReloadOutcome = "refused"
	// Invalid: it can't be used or not be read; nothing has changed.
	Invalid ReloadOutcome = "invalid"
)

// ReloadResult is what came of one reload.
type ReloadResult struct {
	Outcome ReloadOutcome
	// Changed are the paths of all fields that differ, sorted; NeedRestart those of
	// them that can't change while the agent runs.
	Changed, NeedRestart []string
	// Before is what was in force before, Current what is now.
	Before, Current *Config
	// Err says why the configuration is Invalid.
	Err error
}

// Message says in a sentence what came of it, for a person.
func (r *ReloadResult) Message() string {
	switch r.Outcome {
	case Applied:
		return "the configuration was reloaded: " + strings.Join(r.Changed, ", ")
	case Unchanged:
		return "the configuration was read again: nothing in it has changed"
	case Refused:
		text := fmt.Sprintf("the changed configuration was not applied: %s can't change while the agent runs: "+
			"restart the agent", strings.Join(r.NeedRestart, ", "))
		if live := len(r.Changed) - len(r.NeedRestart); live > 0 {
			text += fmt.Sprintf(" (until then, %d other changes aren't in force either)", live)
		}
		return text
	default:
		return fmt.Sprintf("the changed configuration was not applied, the previous one stays in force: %v", r.Err)
	}
}

// ReloadOptions are what a Reloader is made with.
type ReloadOptions struct {
	// Load reads the configuration again; old is the one in force. It must not
	// change anything.
	Load func(ctx context.Context, old *Config) (*Config, error)
	// Apply passes the fields that may change to those who act on them. It can't fail,
	// since the configuration has been validated.
	Apply func(*Config)
	// Begin and End frame each reload, for a service manager and whoever counts.
	Begin func()
	End   func(ReloadResult)
}

// Reloader holds the configuration in force, and is the only one who replaces it: by all of
// a changed one, or by nothing of it. What may change without a restart is said by the table in
// config/fields; one changed field that may not keeps the others from being taken in too.
type Reloader struct {
	o       ReloadOptions
	current atomic.Pointer[Config]
	// asked and changed have one slot each: wake-ups carry no data.
	asked, changed wake.Slot
}

// NewReloader returns a Reloader with the configuration that the agent starts with.
func NewReloader(start *Config, o ReloadOptions) *Reloader {
	r := &Reloader{o: o, asked: wake.NewSlot(), changed: wake.NewSlot()}
	r.current.Store(start)
	return r
}

// Current returns the configuration in force. It must not be changed.
func (r *Reloader) Current() *Config { return r.current.Load() }

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

func (r *Reloader) reload(ctx context.Context) ReloadResult {
	old := r.Current()
	next, err := r.o.Load(ctx, old)
	if err != nil {
		return ReloadResult{Outcome: Invalid, Before: old, Current: old, Err: err}
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
func compare(old, next *Config) ReloadResult {
	result := ReloadResult{Outcome: Unchanged, Before: old, Changed: paths.Diff(&old.Kubelet, &next.Kubelet)}
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
