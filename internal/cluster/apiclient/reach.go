package apiclient

import (
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// errNotAsked is the error that Reached returns before the first call.
var errNotAsked = errors.New("the API server wasn't asked yet")

// repeatAfter is the shortest time between two log messages about the same trouble, if the server answers in between.
const repeatAfter = time.Minute

// reach tracks whether the server can be used.
type reach struct {
	log logr.Logger
	// changed wakes when ok or trouble has changed, recovered when a call succeeds after earlier calls have failed.
	changed, recovered wake.Group

	mu sync.Mutex
	// faulty says that the last call failed because of the server.
	faulty bool
	ok     bool
	since  time.Time
	err    error
	// trouble is the kind of the current failure. logged is the kind of failure that was logged last, at loggedAt.
	trouble, logged trouble
	loggedAt        time.Time
	// reported says that the current failure was logged.
	reported bool
}

func newReach(log logr.Logger) *reach { return &reach{log: log, err: errNotAsked} }

func (r *reach) now() (bool, time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ok, r.since, r.err
}

// answered records an answer of the server. well is false if the answer says that the server fails.
func (r *reach) answered(server string, well bool) {
	r.mu.Lock()
	recovered := well && r.faulty
	r.faulty = !well
	if recovered {
		defer r.recovered.Wake()
	}
	if r.ok {
		r.mu.Unlock()
		return
	}
	now := time.Now()
	switch {
	case r.since.IsZero(), r.trouble == badKubeconfig:
		r.log.Info("The API server answers", "url", server)
	case r.reported:
		r.log.Info("The API server answers again", "url", server, "duration", now.Sub(r.since).Round(time.Second))
	}
	r.ok, r.since, r.err, r.trouble, r.reported = true, now, nil, noTrouble, false
	r.mu.Unlock()
	r.changed.Wake()
}

// failed records that the server can't be used. Each kind of trouble is logged when it begins, not for each call.
func (r *reach) failed(e *Error) {
	r.mu.Lock()
	changed := r.trouble != e.trouble
	if changed {
		now := time.Now()
		if r.ok || r.since.IsZero() {
			r.since = now
		}
		if e.trouble != badKubeconfig && // load logs those
			(r.logged != e.trouble || now.Sub(r.loggedAt) >= repeatAfter) {
			r.log.Error(e.Err, "The API server can't be used; pods keep running", "url", e.Server, "advice", e.Advice)
			r.logged, r.loggedAt, r.reported = e.trouble, now, true
		}
	}
	r.ok, r.faulty, r.err, r.trouble = false, true, e, e.trouble
	r.mu.Unlock()
	if changed {
		r.changed.Wake()
	}
}
