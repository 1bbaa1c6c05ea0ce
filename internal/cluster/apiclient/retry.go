package apiclient

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deckhand-node/deckhand/internal/pod"
)

const (
	firstDelay = 500 * time.Millisecond
	// lastDelay bounds a delay, unless the server requests a longer one, which mostRequested bounds.
	lastDelay     = time.Minute
	mostRequested = 5 * time.Minute
)

// Retry reports whether the same call may succeed later, and how long to wait before the next one of its kind.
// failures is the number of failures in a row before this one. Delays are random, so that nodes don't return all at
// once.
func Retry(err error, failures int) (again bool, after time.Duration) {
	if err == nil {
		return false, 0
	}
	after = backoff(firstDelay, failures)
	if d := requestedDelay(err); d > 0 {
		d = min(d, mostRequested)
		after = max(after, d+rand.N(d/5+1)) // not before the time that the server requested
	}
	return worthwhile(err), after
}

// worthwhile reports whether the same call may succeed later.
func worthwhile(err error) bool {
	if errors.Is(err, context.Canceled) {
		return false
	}
	switch code := codeOf(err); code {
	case http.StatusUnauthorized, // credentials are renewed
		http.StatusForbidden, // the authorizer may not have seen this node's new pods yet
		http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	default:
		// After 404, 409, 410, 422 and the like, the request has to change.
		return code < 400 || code >= 500
	}
}

// Rejected reports whether the server rejects this request: until permissions, policies or the request change, it will
// reject it again. After a conflict the same change may succeed.
func Rejected(err error) bool {
	switch code := codeOf(err); code {
	case 0, http.StatusConflict:
		return false
	default:
		return !Unusable(err) && (code == http.StatusForbidden || !worthwhile(err))
	}
}

// backoff is the delay after that many earlier failures: from half of first*2^failures to all of it.
func backoff(first time.Duration, failures int) time.Duration {
	d := min(first<<min(failures, 16), lastDelay)
	return d/2 + rand.N(d/2)
}

// failing reports whether a status says that the server, and not this call alone, may be in trouble.
func failing(code int) bool { return code >= 500 || code == http.StatusTooManyRequests }

// passing reports whether a call may have failed for a reason that is gone once the server recovers.
func passing(err error) bool {
	var e *Error
	if code := codeOf(err); code != 0 && !Unusable(err) {
		return failing(code)
	}
	return !errors.As(err, &e) || e.trouble > own || isTimeout(err)
}

// Backoff schedules the retries of one call: at growing intervals, and soon after the server has recovered if that
// may help. The zero Backoff allows a try immediately.
type Backoff struct {
	failures, recoveries int
	due                  time.Time
	// earliest is the lower bound of due that the server requested or Wait set.
	earliest time.Time
	passing  bool
}

// Failures is the number of failures in a row.
func (b *Backoff) Failures() int { return b.failures }

// Due is when the next try may be made.
func (b *Backoff) Due() time.Time { return b.due }

// Succeeded records a success.
func (b *Backoff) Succeeded() { *b = Backoff{} }

// Failed records a failure, and reports whether the same call may succeed later.
func (b *Backoff) Failed(err error) (again bool) {
	again, after := Retry(err, b.failures)
	now := time.Now()
	b.failures++
	b.due, b.earliest, b.passing = now.Add(after), time.Time{}, passing(err)
	if codeOf(err) == http.StatusTooManyRequests {
		b.earliest = now.Add(min(requestedDelay(err), mostRequested))
	}
	return again
}

// Wait delays the next try by at least d, even if the server recovers.
func (b *Backoff) Wait(d time.Duration) {
	b.earliest = time.Now().Add(d)
	b.due = later(b.due, b.earliest)
}

// Recovered moves the next try forward, because the server has recovered. The delay grows with each recovery: the call
// may fail for a reason that has nothing to do with the server's failures.
func (b *Backoff) Recovered() {
	if !b.passing {
		return
	}
	soon := later(time.Now().Add(backoff(firstDelay, b.recoveries)), b.earliest)
	b.recoveries++
	if soon.Before(b.due) {
		b.due = soon
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// codeOf is the HTTP status of an error; 0 if there was no answer.
func codeOf(err error) int {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return 0
}

func requestedDelay(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok && e.retryAfter > 0 {
		return e.retryAfter
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return pod.Seconds(seconds)
	}
	return 0
}
