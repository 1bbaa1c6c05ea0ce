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
	// start makes the module ready for those after it; may be nil.
	start func(context.Context) error
	// run is the module's work, until its context ends; may be nil. If it returns
	// before that, the agent stops.
	run func(context.Context) error
}

// patience is how long a module may take to stop before that is said aloud.
const patience = 5 * time.Second

// runModules starts the modules one after the other, waits until ctx ends or one
// of them fails, and stops those that run in reverse order, each with its
// goroutine waited for.
func runModules(ctx context.Context, log logr.Logger, modules []module) error {
	type running struct {
		module
		cancel context.CancelFunc
		done   chan struct{}
		err    error
	}
	var up []*running
	failed := make(chan *running, len(modules))
	var result error
	for _, m := range modules {
		if m.start != nil {
			if err := m.start(ctx); err != nil {
				if ctx.Err() == nil {
					result = fmt.Errorf("%s: %w", m.name, err)
				}
				break
			}
		}
		if m.run == nil {
			continue
		}
		// A module ends when its turn comes, not when ctx does.
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := &running{module: m, cancel: cancel, done: make(chan struct{})}
		up = append(up, r)
		go func() {
			defer close(r.done)
			r.err = r.run(own)
			if own.Err() == nil {
				failed <- r
			}
		}()
	}
	if result == nil {
		select {
		case <-ctx.Done():
		case r := <-failed:
			<-r.done
			result = fmt.Errorf("%s: %w", r.name, cmpErr(r.err))
		}
	}
	for i := len(up) - 1; i >= 0; i-- {
		r := up[i]
		r.cancel()
		late := time.NewTimer(patience)
		select {
		case <-r.done:
		case <-late.C:
			log.Info("A module takes long to stop", "module", r.name)
			<-r.done
		}
		late.Stop()
		if r.err != nil && !errors.Is(r.err, context.Canceled) && result == nil {
			result = fmt.Errorf("%s: %w", r.name, r.err)
		}
	}
	return result
}

// cmpErr names the end of a module that gave no reason.
func cmpErr(err error) error {
	if err == nil {
		return errors.New("ended by itself")
	}
	return err
}
