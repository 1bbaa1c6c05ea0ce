package pull

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// errThrottled is what the kubelet says.
var errThrottled = errors.New("pull QPS exceeded")

// throttle limits how many pulls are begun in a second. The limit can be changed at any time.
type throttle struct {
	mu               sync.Mutex
	perSecond, burst int
	limiter          *rate.Limiter
	// changed is closed when the limiter isn't in force any more.
	changed chan struct{}
}

func newThrottle(perSecond, burst int) *throttle {
	t := &throttle{}
	t.replace(perSecond, burst)
	return t
}

// set changes the limit. A new one begins with a whole burst.
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

// wait returns when the next pull may begin, in the order in which it is called. Where
// a pull that fails would be tried again no later than its turn comes, it fails: until
// then waiting costs less than failing, which is all that the kubelet does.
// If the limit changes, those who wait line up again.
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
		timer := time.NewTimer(delay)
		select {
		case <-timer.C:
			return nil
		case <-changed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
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
