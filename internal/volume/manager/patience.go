package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
)

// job is an operation to wait for.
type job struct {
	op    *operations.Operation
	limit time.Time // when to stop waiting
}

// limit returns when to stop waiting for an operation. For an operation that has just begun, this is when it is
// Config.Early old, so that the reason for a pod's delay is reported soon. For older ones it is Config.Patience
// after their begin or, if that has passed, after the start of the wait.
func (m *Manager) limit(op *operations.Operation, start time.Time) time.Time {
	switch age := start.Sub(op.Began()); {
	case age < m.conf.Early:
		return op.Began().Add(m.conf.Early)
	case age < m.conf.Patience:
		return op.Began().Add(m.conf.Patience)
	default:
		return start.Add(m.conf.Patience)
	}
}

// await waits until all jobs have ended or one of them has reached its limit. If a job has failed, or hopeless is
// set, it waits until Config.Early after start at most. The error is the context's.
func (m *Manager) await(ctx context.Context, jobs []job, start time.Time, hopeless bool) error {
	ended := wake.NewSlot()
	for _, j := range jobs {
		defer j.op.Notify(ended)()
	}
	for {
		var limit time.Time
		for _, j := range jobs {
			if !j.op.Ended() && (limit.IsZero() || j.limit.Before(limit)) {
				limit = j.limit
			}
			hopeless = hopeless || j.op.Err() != nil
		}
		if early := start.Add(m.conf.Early); hopeless && early.Before(limit) {
			limit = early
		}
		wait := time.Until(limit)
		if limit.IsZero() || wait <= 0 {
			return nil
		}
		select {
		case <-ended:
		case <-time.After(wait):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// hanging returns the error for an operation that hasn't ended by its limit.
func (m *Manager) hanging(op *operations.Operation) error {
	age, after := time.Since(op.Began()), m.conf.Early
	if age >= m.conf.Patience {
		after = age.Truncate(m.conf.Patience)
	}
	first := op.First()
	working, status := first.State()
	doing := volumestate.Doing(op.Kind())
	switch {
	case first != op:
		return fmt.Errorf("not %s after %s: %w", doing, after, m.hanging(first))
	case !working:
		return fmt.Errorf("not %s after %s: waiting for operations on other volumes to end; nothing needs to be done",
			doing, after)
	case status != "":
		return fmt.Errorf("still being %s after %s: %s", doing, after, status)
	case age >= m.conf.Patience:
		return fmt.Errorf("still being %s after %s: the file system doesn't answer", doing, after)
	default:
		return fmt.Errorf("still being %s after %s", doing, after)
	}
}

// limited returns the error of a failed mount, in which a wait is expected for Config.Patience only: until then, the
// error has the end of this time as the time of the next try.
func (m *Manager) limited(w *volumestate.Wanted, err error) error {
	m.mu.Lock()
	since := m.failed[w.Place.UID][w.Name()].waits
	m.mu.Unlock()
	awaits, ok := errors.AsType[*volume.AwaitsError](err)
	if !ok || !awaits.Expected || since.IsZero() {
		return err
	}
	now := *awaits
	now.Err = err
	if end := since.Add(m.conf.Patience); time.Now().Before(end) {
		now.NotBefore = end
	} else {
		now.Expected = false
		now.Err = fmt.Errorf("timed out waiting for the condition after %s: %w", m.conf.Patience, err)
	}
	return &now
}

// touch runs the function do as an operation on the volume, and returns the path that do returns. The argument what
// distinguishes such operations on one volume.
func (m *Manager) touch(ctx context.Context, e *volumestate.Mounted, what string,
	do func(context.Context) (string, error)) (string, error) {
	for {
		var path string
		called := false
		op := m.ops.Start(ctx, operations.Task{
			Key: e.Key(), Kind: volumestate.Part + what, Owner: string(e.Place.UID),
			Do: func(ctx context.Context, _ *operations.Operation) (err error) {
				called = true
				path, err = do(ctx)
				return err
			},
		})
		start := time.Now()
		if err := m.await(ctx, []job{{op, m.limit(op, start)}}, start, false); err != nil {
			return "", err
		}
		if !op.Ended() {
			return "", m.hanging(op)
		}
		if err := op.Err(); err != nil || called {
			return path, err
		}
		// The operation that has ended was started by an earlier call of touch, perhaps with another request: run this
		// one.
	}
}
