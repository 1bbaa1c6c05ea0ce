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
	turn   chan struct{} // closed when it is the operation's turn
	done   chan struct{} // closed when err is set
	err    error

	// Group.mu guards the fields below.
	cancelled, working bool
	doing              string
	leave              func() // frees the operation's place among Config.Parallel
	wakes              []wake.Slot
}

// Key is the object that the operation works on: Task.Key.
func (o *Operation) Key() Key { return o.key }

// Kind is the kind of work that the operation does: Task.Kind.
func (o *Operation) Kind() string { return o.kind }

// Undoes reports whether the operation undoes earlier work: Task.Undoes.
func (o *Operation) Undoes() bool { return o.undoes }

// Began is when Start created the operation. It may have waited for its turn after that.
func (o *Operation) Began() time.Time { return o.began }

// Done is closed when the operation has ended.
func (o *Operation) Done() <-chan struct{} { return o.done }

// Err returns the operation's error; nil if it succeeded or hasn't ended yet.
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

// Wait waits until the operation has ended, and returns its error. If ctx ends before, it returns the context's
// error.
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

// Notify fills the slot when the operation has ended, unless stop was called before.
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
		o.cancel() // under the lock, because Start relies on it: if cancelled is set, the context has ended
	}
}

// Say sets a short description of the operation's current step, which State returns.
func (o *Operation) Say(doing string) {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	o.doing = doing
}

// Waits is Say for a step that waits for another program. The operation doesn't count towards Config.Parallel any more:
// a program that hangs delays no other operations.
func (o *Operation) Waits(doing string) {
	o.Say(doing)
	o.group.mu.Lock()
	leave := o.leave
	o.group.mu.Unlock()
	if leave != nil {
		leave()
	}
}

// State reports whether the operation has begun to work, and returns the description from the last call of Say.
func (o *Operation) State() (working bool, doing string) {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	return o.working, o.doing
}

// First returns the operation whose turn it is among those with this operation's key. While this operation works,
// and after it has ended, First returns the operation itself.
func (o *Operation) First() *Operation {
	o.group.mu.Lock()
	defer o.group.mu.Unlock()
	if line := o.group.lines[o.key]; slices.Contains(line, o) {
		return line[0]
	}
	return o
}
