package operations

import (
	"context"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Operation is an operation that is running, waits for its turn, or has ended. It is safe for concurrent use.
type Operation struct {
	group  *Group
	key    Key
	kind   string
	undoes bool
	owner  string
	began  time.Time
	cancel context.CancelFunc
	turn   chan struct{} // closed when its turn has come
	done   chan struct{} // closed when err is set
	err    error

	// The group's lock guards these.
	cancelled, working bool
	doing              string
	wakes              []wake.Slot
}

// Key is Task.Key.
func (o *Operation) Key() Key { return o.key }

// Kind is Task.Kind.
func (o *Operation) Kind() string { return o.kind }

// Began is the time of Start.
func (o *Operation) Began() time.Time { return o.began }

// Done is closed when the operation has ended.
func (o *Operation) Done() <-chan struct{} { return o.done }

// Err returns the operation's error once it has ended.
func (o *Operation) Err() error {
	select {
	case <-o.done:
		return o.err
	default:
		return nil
	}
}

// Ended reports whether the operation has ended.
func (o *Operation) Ended() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// Wait waits until the operation has ended, and returns its error, or until ctx ends.
func (o *Operation) Wait(ctx context.Context) error {
	select {
	case <-o.done:
		return o.err
	case <-ctx.Done():
		if o.Ended() {
			return o.err
		}
		return ctx.Err()
	}
}

// Notify fills slot when the operation has ended, until stop is called.
func (o *Operation) Notify(slot wake.Slot) (stop func()) {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	if o.Ended() {
		slot.Wake()
		return func() {}
	}
	o.wakes = append(o.wakes, slot)
	return func() {
		o.group.mu.Lock()
		defer o.group.mu.Unlock()
		o.wakes = slices.DeleteFunc(o.wakes, func(w wake.Slot) bool { return w == slot })
	}
}

// Cancel cancels the operation's context. An operation that waits for its turn ends at once; one that hangs in the
// kernel doesn't.
func (o *Operation) Cancel() {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	o.cancelled = true
	if o.cancel != nil {
		o.cancel() // under the lock: Start relies on the context of a cancelled operation being cancelled
	}
}

// Say sets a short description of the current step, for State.
func (o *Operation) Say(doing string) {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	o.doing = doing
}

// State reports whether the operation's turn has come, and its last description from Say.
func (o *Operation) State() (working bool, doing string) {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	return o.working, o.doing
}

// First returns the operation that currently has the turn for this key: the operation itself while it is running.
func (o *Operation) First() *Operation {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	if line := o.group.lines[o.key]; slices.Contains(line, o) {
		return line[0]
	}
	return o
}
