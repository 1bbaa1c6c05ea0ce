package pull

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// errThrottled is the error of wait. Its message is the kubelet's.
var errThrottled = errors.New("pull QPS exceeded")

// throttle limits how many pulls start per second. The limit can be changed at any time.
type throttle struct {
	mu               sync.Mutex
	perSecond, burst int
	limiter          *rate.Limiter
	// changed is closed when the limiter has been replaced.
	changed chan struct{}
}

func newThrottle(perSecond, burst int) *throttle {
	t := &throttle{}
	t.replace(perSecond, burst)
	return t
}

// set changes the limit. A new limit starts with a full burst.
func (t *throttle) set(perSecond, burst int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if perSecond == t.perSecond && burst == t.burst {
		return
	}
	close(t.changed)
	t.replace(perSecond, burst)
}

func (t *throttle) replace(perSecond, burst int) {
	t.perSecond, t.burst, t.changed = perSecond, burst, make(chan struct{})
	if perSecond <= 0 {
		t.limiter = rate.NewLimiter(rate.Inf, 0)
	} else {
		t.limiter = rate.NewLimiter(rate.Limit(perSecond), max(burst, 1))
	}
}

// wait returns when the next pull may start, in the order of the calls. It fails if that would take longer than
// firstDelay, the first backoff delay: a failed pull is retried sooner. (The kubelet fails without waiting.) If the
// limit changes, waiting callers queue again.
func (t *throttle) wait(ctx context.Context) error {
	for {
		r, changed := t.reserve()
		delay := r.Delay()
		if delay > firstDelay {
			r.Cancel()
			return errThrottled
		}
		if delay == 0 {
			return nil
		}
		select {
		case <-time.After(delay):
			return nil
		case <-changed:
		case <-ctx.Done():
			r.Cancel()
			return ctx.Err()
		}
	}
}

func (t *throttle) reserve() (*rate.Reservation, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.limiter.Reserve(), t.changed
}
