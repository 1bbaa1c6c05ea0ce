package operations

import (
	"context"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Operation is one that is at work, waits for its turn, or has ended. It is safe for
// concurrent use.
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

	// By the group's lock.
	cancelled, working bool
	doing              string
	wakes              []wake.Slot
}

// Key is what it works on, Kind what it does there.
func (o *Operation) Key() Key { return o.key }

// Kind is Task.Kind.
func (o *Operation) Kind() string { return o.kind }

// Began is when it was asked for.
func (o *Operation) Began() time.Time { return o.began }

// Done is closed when it has ended.
func (o *Operation) Done() <-chan struct{} { return o.done }

// Err is what it came to, once it has ended.
func (o *Operation) Err() error {
	select {
	case <-o.done:
		return o.err
	default:
		return nil
	}
}

// Ended reports whether it has ended.
func (o *Operation) Ended() bool {
	select {
	case <-o.done:
		return true
	default:
		return false
	}
}

// Wait waits until it has ended and returns what it came to, or until ctx has.
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

// Notify fills slot when it has ended, until stop is called.
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

// Cancel asks it to give up. One that waits for its turn does so at once, one that hangs in the
// kernel can't.
func (o *Operation) Cancel() {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	o.cancelled = true
	if o.cancel != nil {
		o.cancel() // under the lock: who passes over it, being cancelled, relies on it that it never works
	}
}

// Say sets in a few words what it is doing, for those who ask State.
func (o *Operation) Say(doing string) {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	o.doing = doing
}

// State reports whether its turn has come, and what it said last that it is doing.
func (o *Operation) State() (working bool, doing string) {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	return o.working, o.doing
}

// First is the operation that those of this key wait for: the operation itself while
// it is at work.
func (o *Operation) First() *Operation {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	if line := o.group.lines[o.key]; slices.Contains(line, o) {
		return line[0]
	}
	return o
}
