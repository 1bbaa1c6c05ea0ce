// Package operations runs work that may take long, or for ever where a file system hangs:
// at most one operation at a time for each thing that is worked on, each on a goroutine
// that belongs to the group. Whoever asks for one may stop waiting for it; it goes on, and
// those who ask for the same thing later join it.
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

// ErrStopped is the error of operations that are asked for after Stop.
var ErrStopped = errors.New("the agent is about to end")

// Key names what is worked on: a volume of a pod, a device.
type Key string

// Config says how operations are run. Zero fields have defaults.
type Config struct {
	// Parallel is how many operations work at once; 0 means 16.
	Parallel int
	// Slow is how long an operation counts as one of them; 0 means 1 s. What takes longer, since
	// something hangs or an image is pulled, goes on without keeping others from working.
	Slow time.Duration
	// First is how long to wait after the first failure, which doubles with each that follows,
	// up to Max; 0 means 500 ms and 2 min 2 s.
	First, Max time.Duration
}

// Task is work that is asked for.
type Task struct {
	Key Key
	// Kind tells the kinds of work on one key apart: who asks for the kind that is asked for
	// already joins that operation, any other waits for its turn.
	Kind string
	// Undoes says that the work undoes what was done on the key before. What is asked for after it is done
	// after it, and it after all that was asked for before it: it is joined by nobody who would pass another
	// operation by that, and nobody passes it.
	Undoes bool
	// Owner is for whom it is done: see Group.Of. Failures of what nobody owns aren't kept: see
	// Group.Failed.
	Owner string
	// Do works. Its context ends when the operation is cancelled; its values are those of the one
	// who asked first. It may say what it is at by Operation.Say.
	Do func(context.Context, *Operation) error
	// Again says when an error wants to be asked again; zero, or no function, for the
	// group's back-off.
	Again func(error) time.Time
}

// Group runs operations. It is safe for concurrent use.
type Group struct {
	conf Config
	gate *gate.Gate

	mu      sync.Mutex
	stopped bool
	// lines holds those of each key that have not ended, in the order in which they were asked for. The
	// first one's turn has come.
	lines  map[Key][]*Operation
	failed map[what]failure
}

// what is one kind of work on one key.
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

// New makes a group. It has no goroutine but those of its operations; see Stop.
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

// Begin asks for an operation and doesn't wait for it. One of the same key and kind that nobody
// has cancelled is joined, unless either of the two undoes what is asked for in between (Task.Undoes); so there
// are never more of them than kinds of work, however often each is asked for behind one that
// hangs. Any other is waited for first. The back-off is for who asks to mind: see Failed.
func (g *Group) Begin(ctx context.Context, t Task) *Operation {
	g.mu.Lock()
	defer g.mu.Unlock()
	line := g.lines[t.Key]
	for _, before := range slices.Backward(line) {
		if before.cancelled {
			continue // it does no more of what was asked of it
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
	// It outlives whoever asked for it.
	ctx, o.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if len(line) == 0 {
		close(o.turn)
	}
	g.lines[t.Key] = append(line, o)
	go g.run(ctx, o, t)
	return o
}

// Failed returns what the last operation of this kind on the key failed with, if it did and had an
// owner, and when it is worth another try.
func (g *Group) Failed(key Key, kind string) (until time.Time, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f := g.failed[what{key, kind}]
	return f.until, f.err
}

// Of returns the operations of an owner that are at work or wait for their turn.
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

// Forget forgets the failures of an owner.
func (g *Group) Forget(owner string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for w, f := range g.failed {
		if f.owner == owner {
			delete(g.failed, w)
		}
	}
}

// Stop cancels all operations and waits until they have ended, or ctx has. It returns those that
// go on all the same: they hang where nothing can end them. No more are begun.
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
	cancelled := ctx.Err() != nil // before the failure counts: nobody is to blame for what was given up
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

// leave takes the operation out of its line, and gives the turn to the next if it was the first. It is called
// with the group's lock held.
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

// work waits for the operation's turn and does what there is to do.
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
	o.working = true
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

// Backoff is how long to wait after so many failures in a row.
func (g *Group) Backoff(count int) time.Duration {
	if count > 30 {
		return g.conf.Max
	}
	return min(g.conf.First<<(count-1), g.conf.Max)
}
