package apiclient

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	firstDelay = 500 * time.Millisecond
	// lastDelay bounds how long is waited, but for a server that asks for more; that is bounded, too.
	lastDelay     = time.Minute
	mostRequested = 5 * time.Minute
)

// Retry says whether a call that failed may succeed when it is made again as it was, and how long to wait before
// anything like it is asked for again. failures is how many calls failed in a row before this one. No two nodes wait equally
// long, so that they don't come back all at once.
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
		return time.Duration(seconds) * time.Second
	}
	return 0
}
