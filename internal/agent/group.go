package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
)

// module is one part of the agent. Modules start in the order of their list and
// stop in reverse.
type module struct {
	name string
	// start makes the module ready for those after it; may be nil. What it has
	// taken it gives back if it fails: run isn't called then.
	start func(context.Context) error
	// run is the module's work, until its context ends; may be nil. If it returns
	// before that, the agent stops: with an error, unless that is errDone.
	run func(context.Context) error
}

// errDone says that a module has done what the agent was started for, or wants it to end in order.
var errDone = errors.New("done")

// thenEnd has the agent end once run has returned without an error.
func thenEnd(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := run(ctx); err != nil {
			return err
		}
		return errDone
	}
}

// patience is how long a module may take to stop before that is said aloud.
const patience = 5 * time.Second

// work is a module that runs.
type work struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	// err is what it returned, once done is closed.
	err error
}

// runModules starts the modules one after the other, waits until ctx ends or one
// of them fails, and stops those that run in reverse order, each with its
// goroutine waited for. One that fails while a later one starts ends that start.
func runModules(ctx context.Context, log logr.Logger, modules []module) error {
	alive, end := context.WithCancelCause(ctx)
	defer end(nil)
	var up []*work
	var result error
	for _, m := range modules {
		if alive.Err() != nil {
			break
		}
		if m.start != nil {
			if err := m.start(alive); err != nil {
				if alive.Err() == nil {
					result = fmt.Errorf("%s: %w", m.name, err)
				}
				break
			}
		}
		if m.run != nil {
			up = append(up, begin(ctx, m, end))
		}
	}
	if result == nil {
		<-alive.Done()
		if ctx.Err() == nil {
			result = context.Cause(alive)
		}
		if errors.Is(result, errDone) {
			result = nil
		}
	}
	for i := len(up) - 1; i >= 0; i-- {
		r := up[i]
		r.stop(log)
		if r.err != nil && !errors.Is(r.err, context.Canceled) && !errors.Is(r.err, errDone) && result == nil {
			result = fmt.Errorf("%s: %w", r.name, r.err)
		}
	}
	return result
}

// begin runs a module until its turn to stop comes, which isn't when ctx ends.
// Should it return before that, failed is called.
func begin(ctx context.Context, m module, failed context.CancelCauseFunc) *work {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r := &work{name: m.name, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = m.run(own)
		if own.Err() == nil {
			failed(fmt.Errorf("%s: %w", r.name, orEnded(r.err)))
		}
	}()
	return r
}

// stop ends the module and waits for it.
func (r *work) stop(log logr.Logger) {
	r.cancel()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-r.done:
		return
	case <-late.C:
		log.Info("A module takes long to stop", "module", r.name)
	}
	<-r.done
}

// orEnded names the end of a module that gave no reason.
func orEnded(err error) error {
	if err == nil {
		return errors.New("ended by itself")
	}
	return err
}
