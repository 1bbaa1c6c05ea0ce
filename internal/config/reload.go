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

// ReloadOutcome is the outcome of a reload.
type ReloadOutcome string

// The outcomes, which are also values of a metric's label.
const (
	// Applied: the new configuration is in effect.
	Applied ReloadOutcome = "applied"
	// Unchanged: no setting differs from the configuration in effect.
	Unchanged ReloadOutcome = "unchanged"
	// Refused: the new configuration differs in fields that need a restart. Nothing was applied.
	Refused ReloadOutcome = "refused"
	// Invalid: the new configuration is invalid or can't be read. Nothing was applied.
	Invalid ReloadOutcome = "invalid"
)

// ReloadResult is the result of one reload.
type ReloadResult struct {
	Outcome ReloadOutcome
	// Changed are the sorted paths of all fields that differ. NeedRestart are those of these fields that change only
	// with a restart of the agent.
	Changed, NeedRestart []string
	// Before is the configuration in effect before the reload, and Current the one in effect after it.
	Before, Current *Config
	// Err says why the configuration is Invalid.
	Err error
}

// Message describes the result in a sentence.
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

// ReloadOptions are the options of a Reloader.
type ReloadOptions struct {
	// Load reads the configuration again; old is the one in effect. It must have no side effects.
	Load func(ctx context.Context, old *Config) (*Config, error)
	// Apply passes the changed fields to the components that use them. It can't fail, because the configuration was
	// validated.
	Apply func(*Config)
	// Begin and End are called around each reload, for the service manager and metrics.
	Begin func()
	End   func(ReloadResult)
}

// Reloader holds the configuration in effect, and is the only writer of it. It applies a changed configuration
// completely or not at all. The table in config/fields has the fields that may change without a restart; if another
// field changed, nothing is applied.
type Reloader struct {
	o       ReloadOptions
	current atomic.Pointer[Config]
	// asked is woken by Ask, and changed by CheckFiles. Each has one slot, because wake-ups carry no data.
	asked, changed wake.Slot
}

// NewReloader returns a Reloader with the agent's initial configuration.
func NewReloader(start *Config, o ReloadOptions) *Reloader {
	r := &Reloader{o: o, asked: wake.NewSlot(), changed: wake.NewSlot()}
	r.current.Store(start)
	return r
}

// Current returns the configuration in effect. It must not be modified.
func (r *Reloader) Current() *Config { return r.current.Load() }

// Ask requests a reload. Its result is always reported, because a user or the service manager waits for it.
func (r *Reloader) Ask() { r.asked.Wake() }

// CheckFiles requests a reload because files may have changed. If no setting changed, nothing is reported.
func (r *Reloader) CheckFiles() { r.changed.Wake() }

// Run reloads at every request, until ctx ends.
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
		// Nothing can fail from here on. The new configuration is stored before Apply, because components that Apply
		// wakes read it.
		r.current.Store(next)
		r.o.Apply(next)
	case Unchanged:
		r.current.Store(next) // the settings are equal, but their origins may differ, such as line numbers
	}
	result.Current = r.Current()
	return result
}

// compare decides what to do about the difference of two configurations.
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
