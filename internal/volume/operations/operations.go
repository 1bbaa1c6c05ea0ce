// Package operations runs work that may take long, or for ever if a file system hangs. At most one operation at a
// time runs for each key, on a goroutine of the group. A caller may stop waiting for an operation, which continues;
// later callers with the same task join it.
package operations

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/gate"
)

// ErrStopped is the error of operations that are started after Stop.
var ErrStopped = errors.New("the agent is about to end")

// Key identifies the object that an operation works on, such as a volume of a pod or a device.
type Key string

// Config configures a Group. Zero fields have defaults.
type Config struct {
	// Parallel is how many operations run at once; 0 means 16.
	Parallel int
	// Slow is how long an operation counts towards Parallel; 0 means 1 s. An operation that takes longer, because it
	// hangs, continues without blocking others. One that waits for another program doesn't count: see Operation.Waits.
	Slow time.Duration
	// First is the delay after the first failure; 0 means 500 ms. It doubles with each further failure, up to Max; 0
	// means 2 min 2 s.
	First, Max time.Duration
}

// Task is work for an operation.
type Task struct {
	Key Key
	// Kind distinguishes the kinds of work on one key: a task joins an operation of the same kind on the key. If
	// there is none, it waits for its turn on the key.
	Kind string
	// Undoes says that the work undoes earlier work on the key. The task runs after all operations on the key that
	// were started before it, and operations that are started later run after it. A task doesn't join an operation
	// if that would change the order relative to an undoing task.
	Undoes bool
	// Owner is the pod or other owner of the work: see Group.Of. Failures of operations without an owner aren't
	// recorded: see Group.Failed.
	Owner string
	// Do does the work. Its context ends when the operation is cancelled, and has the values of the context of the
	// Start call that created the operation. Do may call Operation.Say to describe its current step.
	Do func(context.Context, *Operation) error
	// Again returns when to retry after this error. If it returns the zero time, or Again is nil, the group's
	// back-off decides.
	Again func(error) time.Time
}

// Group runs operations. It is safe for concurrent use.
type Group struct {
	conf Config
	gate *gate.Gate

	mu      sync.Mutex
	stopped bool
	// lines has the operations of each key that haven't ended, in the order of Start. It is the turn of the first
	// one.
	lines  map[Key][]*Operation
	failed map[what]failure
}

// what is a kind of work on a key.
type what struct {
	key  Key
	kind string
}

type failure struct {
	count int
	until time.Time
	err   error
	owner string
}

// New returns a group. Only its operations have goroutines: see Stop.
func New(c Config) *Group {
	if c.Parallel == 0 {
		c.Parallel = 16
	}
	if c.Slow == 0 {
		c.Slow = time.Second
	}
	if c.First == 0 {
		c.First = 500 * time.Millisecond
	}
	if c.Max == 0 {
		c.Max = 2*time.Minute + 2*time.Second
	}
	return &Group{conf: c, gate: gate.New(c.Parallel), lines: map[Key][]*Operation{}, failed: map[what]failure{}}
}

// Start starts an operation without waiting for it. If an operation of the same key and kind hasn't ended, Start
// returns that operation instead, with two exceptions: that operation was cancelled; or a task of another kind was
// started after it, and that task or t undoes earlier work (Task.Undoes). So the number of operations on a key is
// bounded, however often tasks are started behind one that hangs. Operations of other kinds on the key run first.
// Callers have to respect the back-off themselves: see Failed.
func (g *Group) Start(ctx context.Context, t Task) *Operation {
	g.mu.Lock()
	defer g.mu.Unlock()
	line := g.lines[t.Key]
	for _, before := range slices.Backward(line) {
		if before.cancelled {
			continue // a cancelled operation may end without its work
		}
		if before.kind == t.Kind {
			return before
		}
		if before.undoes || t.Undoes {
			break
		}
	}
	o := &Operation{
		group: g, key: t.Key, kind: t.Kind, undoes: t.Undoes, owner: t.Owner, began: time.Now(),
		turn: make(chan struct{}), done: make(chan struct{}),
	}
	if g.stopped {
		o.err = ErrStopped
		close(o.done)
		return o
	}
	// The operation outlives its caller's context.
	ctx, o.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if len(line) == 0 {
		close(o.turn)
	}
	g.lines[t.Key] = append(line, o)
	go g.run(ctx, o, t)
	return o
}

// Failed returns the error of the last operation of this kind on the key, and when to retry. Both are zero if the
// operation succeeded or had no owner.
func (g *Group) Failed(key Key, kind string) (until time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.failed[what{key, kind}]
	return f.until, f.err
}

// Of returns the operations of an owner that are running or wait for their turn.
func (g *Group) Of(owner string) []*Operation {
	g.mu.Lock()
	defer g.mu.Unlock()
	var list []*Operation
	for _, line := range g.lines {
		for _, o := range line {
			if o.owner == owner {
				list = append(list, o)
			}
		}
	}
	return list
}

// On returns the operations on a key that haven't ended, in the order of Start.
func (g *Group) On(key Key) []*Operation {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.lines[key])
}

// Forget removes the recorded failures of an owner.
func (g *Group) Forget(owner string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.DeleteFunc(g.failed, func(_ what, f failure) bool { return f.owner == owner })
}

// Stop cancels all operations and waits until they have ended, or ctx ends. It returns the operations that are still
// running: they hang. No operation can be started afterwards.
func (g *Group) Stop(ctx context.Context) []*Operation {
	g.mu.Lock()
	g.stopped = true
	all := slices.Concat(slices.Collect(maps.Values(g.lines))...)
	g.mu.Unlock()
	for _, o := range all {
		o.Cancel()
	}
	var left []*Operation
	for _, o := range all {
		select {
		case <-o.done:
		case <-ctx.Done():
			if working, _ := o.State(); working && !o.Ended() {
				left = append(left, o)
			}
		}
	}
	return left
}

func (g *Group) run(ctx context.Context, o *Operation, t Task) {
	defer o.cancel()
	err := g.work(ctx, o, t)
	cancelled := ctx.Err() != nil // before the failure is recorded: cancellation isn't a failure
	g.mu.Lock()
	defer g.mu.Unlock()
	switch w := (what{t.Key, t.Kind}); {
	case err == nil:
		delete(g.failed, w)
	case !cancelled && t.Owner != "":
		g.failed[w] = g.failure(g.failed[w].count+1, err, t)
	}
	g.leave(o)
	o.err = err
	close(o.done)
	for _, slot := range o.wakes {
		slot.Wake()
	}
	o.wakes = nil
}

// leave removes the operation from the operations on its key. If it was the first, it is the turn of the next one.
// g.mu is held.
func (g *Group) leave(o *Operation) {
	line := g.lines[o.key]
	i := slices.Index(line, o)
	line = slices.Delete(line, i, i+1)
	if len(line) == 0 {
		delete(g.lines, o.key)
		return
	}
	g.lines[o.key] = line
	if i == 0 {
		close(line[0].turn)
	}
}

// work waits for the operation's turn and runs the task.
func (g *Group) work(ctx context.Context, o *Operation, t Task) error {
	select {
	case <-o.turn:
	case <-ctx.Done():
		return ctx.Err()
	}
	release, err := g.gate.Acquire(ctx, 0)
	if err != nil {
		return err
	}
	defer release()
	slow := time.AfterFunc(g.conf.Slow, release)
	defer slow.Stop()
	g.mu.Lock()
	o.working, o.leave = true, release
	g.mu.Unlock()
	return t.Do(ctx, o)
}

func (g *Group) failure(count int, err error, t Task) failure {
	f := failure{count: count, err: err, owner: t.Owner}
	if t.Again != nil {
		f.until = t.Again(err)
	}
	if f.until.IsZero() {
		f.until = time.Now().Add(g.Backoff(count))
	}
	return f
}

// Backoff returns the delay after this number of failures in a row.
func (g *Group) Backoff(count int) time.Duration {
	if count > 30 {
		return g.conf.Max
	}
	return min(g.conf.First<<(count-1), g.conf.Max)
}
