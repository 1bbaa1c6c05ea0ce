package apiclient

import (
	"errors"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// errNotAsked is why nothing is known of the server at first.
var errNotAsked = errors.New("the API server wasn't asked yet")

// repeatAfter is how long the same trouble isn't logged again, when the server answers now and then.
const repeatAfter = time.Minute

// reach is what is known of the way to the server.
type reach struct {
	log logr.Logger
	// changed wakes when ok has changed or there is another trouble, recovered when a call succeeds after others have
	// failed.
	changed, recovered wake.Group

	mu sync.Mutex
	// faulty says that the last call failed by the server's fault.
	faulty bool
	ok     bool
	since  time.Time
	err    error
	// trouble is the kind of the failure now, logged that of the last one that was logged, at loggedAt.
	trouble, logged trouble
	loggedAt        time.Time
	// told says that the failure now was logged.
	told bool
}

func newReach(log logr.Logger) *reach { return &reach{log: log, err: errNotAsked} }

func (r *reach) now() (bool, time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ok, r.since, r.err
}

// answered records that the server answers: well, or that it fails.
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
	case r.told:
		r.log.Info("The API server answers again", "url", server, "duration", now.Sub(r.since).Round(time.Second))
	}
	r.ok, r.since, r.err, r.trouble, r.told = true, now, nil, noTrouble, false
	r.mu.Unlock()
	r.changed.Wake()
}

// failed records that it doesn't. Each kind of trouble is logged when it begins, not for each call.
func (r *reach) failed(e *Error) {
	r.mu.Lock()
	changed := r.trouble != e.trouble
	if changed {
		now := time.Now()
		if r.ok || r.since.IsZero() {
			r.since = now
		}
		if e.trouble != badKubeconfig && // who reads the kubeconfig says so
			(r.logged != e.trouble || now.Sub(r.loggedAt) >= repeatAfter) {
			r.log.Error(e.Err, "The API server can't be used; what runs goes on", "url", e.Server, "advice", e.Advice)
			r.logged, r.loggedAt, r.told = e.trouble, now, true
		}
	}
	r.ok, r.faulty, r.err, r.trouble = false, true, e, e.trouble
	r.mu.Unlock()
	if changed {
		r.changed.Wake()
	}
}
