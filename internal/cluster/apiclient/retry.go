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
	// lastDelay bounds how long is waited, but for a server that asks for more; that is bounded, too.
	lastDelay     = time.Minute
	mostRequested = 5 * time.Minute
)

// Retry says whether a call that failed may succeed when it is made again as it was, and how long to wait before
// anything like it is asked for again. failures is how many calls failed in a row before this one. No two nodes wait
// equally long, so that they don't come back all at once.
func Retry(err error, failures int) (again bool, after time.Duration) {
	if err == nil {
		return false, 0
	}
	after = backoff(firstDelay, failures)
	if d := requestedDelay(err); d > 0 {
		d = min(d, mostRequested)
		after = max(after, d+rand.N(d/5+1)) // never before the time that the server asked for
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
		http.StatusForbidden, // the authorizer's view of what this node needs may lag
		http.StatusRequestTimeout, http.StatusTooManyRequests:
		return true
	default:
		// 404, 409, 410, 422 and the like are answers: what was asked for has to change.
		return code < 400 || code >= 500
	}
}

// backoff is how long to wait after so many failures before: from half of first*2^failures to all of it.
func backoff(first time.Duration, failures int) time.Duration {
	d := min(first<<min(failures, 16), lastDelay)
	return d/2 + rand.N(d/2)
}

// failing reports whether a status says that the server, and not this call alone, may be in trouble.
func failing(code int) bool { return code >= 500 || code == http.StatusTooManyRequests }

// passing reports whether a call failed for a reason that may have gone when the server recovers.
func passing(err error) bool {
	var e *Error
	if code := codeOf(err); code != 0 && !Unusable(err) {
		return failing(code)
	}
	return !errors.As(err, &e) || e.trouble > own || isTimeout(err)
}

// Backoff says when something is tried again that has failed: less and less often, each on its own, and soon after the
// server has recovered where that may help. The zero Backoff is due.
type Backoff struct {
	failures, recoveries int
	due                  time.Time
	// earliest is the time that the server asked for.
	earliest time.Time
	passing  bool
}

// Failures is how many tries in a row have failed.
func (b *Backoff) Failures() int { return b.failures }

// Due is when the next try may be made.
func (b *Backoff) Due() time.Time { return b.due }

// Succeeded takes in that a try didn't fail.
func (b *Backoff) Succeeded() { *b = Backoff{} }

// Failed takes in why a try failed, and reports whether the same one may succeed later.
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

// Wait has the next try wait that long at least, whatever the server recovers from.
func (b *Backoff) Wait(d time.Duration) {
	b.earliest = time.Now().Add(d)
	b.due = later(b.due, b.earliest)
}

// Recovered takes in that the server has recovered. What fails though it did so before isn't tried at once each time:
// it may be what fails alone.
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

// codeOf is the HTTP status that an error stands for; 0 if there was no answer.
func codeOf(err error) int {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return int(status.Status().Code)
	}
	return 0
}

func requestedDelay(err error) time.Duration {
	var e *Error
	if errors.As(err, &e) && e.retryAfter > 0 {
		return e.retryAfter
	}
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		return pod.Seconds(seconds)
	}
	return 0
}
