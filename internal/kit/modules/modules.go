// Package modules runs the parts of a program: it starts them in the order of one list, stops them in reverse, and
// tracks the state of each.
package modules

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
)

// Module is one part of a program.
type Module struct {
	// Name appears in logs, in errors and in Runner.States.
	Name string
	// Start makes the module ready for the modules after it; may be nil. If it fails, it has to release everything that
	// it acquired; Run isn't called then.
	Start func(context.Context) error
	// Run is the module's work, until its context ends; may be nil. If it returns before that, the program ends: with
	// an error, unless that is ErrDone.
	Run func(context.Context) error
}

// ErrDone is returned by the Run of a module when the program has done its work, or has to end without an error.
var ErrDone = errors.New("done")

// ThenEnd returns a Module's Run that ends the program once run has returned without an error.
func ThenEnd(run func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := run(ctx); err != nil {
			return err
		}
		return ErrDone
	}
}

// State is a stage in the life of a module.
type State string

// The states of a module, in their order. Started is the final state of a module without Run.
const (
	Waiting  State = "waiting"
	Starting State = "starting"
	Started  State = "started"
	Running  State = "running"
	Stopping State = "stopping"
	Stopped  State = "stopped"
	Failed   State = "failed"
)

// Status is the name and the state of a module.
type Status struct {
	Name  string `json:"name"`
	State State  `json:"state"`
}

// patience is how long a module may take to stop before that is logged.
const patience = 5 * time.Second

// Runner runs modules. States may be called at any time.
type Runner struct {
	log logr.Logger

	mu     sync.Mutex
	states []Status
}

// NewRunner returns a runner that logs modules that take long to stop.
func NewRunner(log logr.Logger) *Runner { return &Runner{log: log} }

// States lists the modules in the order in which they start; none before Run.
func (r *Runner) States() []Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Status(nil), r.states...)
}

func (r *Runner) set(i int, s State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.states[i].State = s
}

// work is a module that runs.
type work struct {
	index  int
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	// err is the result of Run, once done is closed.
	err error
}

// failed reports whether Run returned an error that isn't ErrDone or a cancelled context.
func (w *work) failed() bool {
	return w.err != nil && !errors.Is(w.err, context.Canceled) && !errors.Is(w.err, ErrDone)
}

// Run starts the modules one after the other, waits until ctx ends or one of them fails, and stops the running ones in
// reverse order. A module is stopped only after the goroutines of all later modules have ended. If a module fails while
// a later module starts, the context of that start ends. Run may be called once.
func (r *Runner) Run(ctx context.Context, list []Module) error {
	r.mu.Lock()
	for _, m := range list {
		r.states = append(r.states, Status{m.Name, Waiting})
	}
	r.mu.Unlock()
	alive, end := context.WithCancelCause(ctx)
	defer end(nil)
	var up []*work
	var result error
	for i, m := range list {
		if alive.Err() != nil {
			break
		}
		if m.Start != nil {
			r.set(i, Starting)
			if err := m.Start(alive); err != nil {
				if alive.Err() != nil {
					r.set(i, Stopped)
					break
				}
				r.set(i, Failed)
				result = fmt.Errorf("%s: %w", m.Name, err)
				break
			}
		}
		r.set(i, Started)
		if m.Run != nil {
			r.set(i, Running)
			up = append(up, r.launch(ctx, i, m, end))
		}
	}
	if result == nil {
		<-alive.Done()
		if ctx.Err() == nil {
			result = context.Cause(alive)
		}
		if errors.Is(result, ErrDone) {
			result = nil
		}
	}
	for i := len(up) - 1; i >= 0; i-- {
		w := up[i]
		r.stop(w)
		if w.failed() && result == nil {
			result = fmt.Errorf("%s: %w", w.name, w.err)
		}
	}
	return result
}

// launch runs a module until stop is called for it; the end of ctx doesn't stop the module. If the module returns
// earlier, launch calls failed.
func (r *Runner) launch(ctx context.Context, index int, m Module, failed context.CancelCauseFunc) *work {
	own, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &work{index: index, name: m.Name, cancel: cancel, done: make(chan struct{})}
	go func() {
		w.err = m.Run(own)
		early, state := own.Err() == nil, Stopped
		if w.failed() || early && w.err == nil {
			state = Failed
		}
		r.set(index, state)
		close(w.done) // closed before failed is called: stop then sees that the module has ended
		if early {
			failed(fmt.Errorf("%s: %w", m.Name, cmp.Or(w.err, errors.New("ended by itself"))))
		}
	}()
	return w
}

// stop ends the module and waits for it.
func (r *Runner) stop(w *work) {
	r.mu.Lock()
	if r.states[w.index].State == Running {
		r.states[w.index].State = Stopping
	}
	r.mu.Unlock()
	w.cancel()
	select {
	case <-w.done:
	case <-time.After(patience):
		r.log.Info("A module takes long to stop", "module", w.name)
		<-w.done
	}
}
