package image

import (
	"context"
	"errors"
	"time"

	"golang.org/x/time/rate"

	"github.com/deckhand-node/deckhand/internal/image/backoff"
)

// errThrottled is what the kubelet says.
var errThrottled = errors.New("pull QPS exceeded")

// throttle limits how many pulls are begun in a second.
type throttle struct{ limiter *rate.Limiter }

func newThrottle(perSecond, burst int) throttle {
	if perSecond <= 0 {
		return throttle{rate.NewLimiter(rate.Inf, 0)}
	}
	return throttle{rate.NewLimiter(rate.Limit(perSecond), max(burst, 1))}
}

// wait returns when the next pull may begin, in the order in which it is called. Where
// a pull that fails would be tried again no later than its turn comes, it fails: until
// then waiting costs less than failing, which is all that the kubelet does.
func (t throttle) wait(ctx context.Context) error {
	r := t.limiter.Reserve()
	delay := r.Delay()
	if delay > backoff.First {
		r.Cancel()
		return errThrottled
	}
	if delay == 0 {
		return nil
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		r.Cancel()
		return ctx.Err()
	}
}
