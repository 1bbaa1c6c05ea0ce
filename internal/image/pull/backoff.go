package pull

import (
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// The kubelet's terms (https://kubernetes.io/docs/concepts/containers/images/#imagepullbackoff
// names the longest, five minutes).
const (
	firstDelay = 10 * time.Second
	maxDelay   = 300 * time.Second
)

// backoffKey is what is waited for: an image, pulled with certain credentials.
type backoffKey struct {
	Image string
	// Login tells those credentials from others, without holding them.
	Login string
}

// backoffState is what is known of an image that couldn't be pulled.
type backoffState struct {
	// Failures is how often in a row, at least 1.
	Failures int
	// Until is when the next try is due.
	Until time.Time
	// Last is why the last try failed.
	Last pod.Failure
}

type entry struct {
	backoffState
	failed time.Time
	delay  time.Duration
}

// backoff remembers which images couldn't be pulled, and when to try again. It is safe for concurrent use; its zero
// value is not ready to use.
type backoff struct {
	mu      sync.Mutex
	entries map[backoffKey]entry
}

// newBackoff makes an empty ledger.
func newBackoff() *backoff { return &backoff{entries: map[backoffKey]entry{}} }

// Get returns what is known of an image that failed lately; false if the next pull of
// it would be as good as the first.
func (l *backoff) Get(k backoffKey) (backoffState, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[k]
	if !ok || e.old(time.Now()) {
		return backoffState{}, false
	}
	return e.backoffState, true
}

// Failed takes in that a pull has just failed, and returns when the next one is due:
// in 10 seconds, twice as long after each further failure, 300 seconds at most. A pull
// that was begun before the last failure, and only fails now, doesn't count as another.
func (l *backoff) Failed(k backoffKey, why pod.Failure) time.Time {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for other, e := range l.entries {
		if e.old(now) {
			delete(l.entries, other)
		}
	}
	e := l.entries[k]
	e.Last = why
	if !now.Before(e.Until) {
		e.delay = min(max(2*e.delay, firstDelay), maxDelay)
		e.Failures++
		e.failed, e.Until = now, now.Add(e.delay)
	}
	l.entries[k] = e
	return e.Until
}

// Succeeded forgets the failures of one key.
func (l *backoff) Succeeded(k backoffKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, k)
}

// Forget forgets the failures of an image, with whatever credentials.
func (l *backoff) Forget(image string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.entries {
		if k.Image == image {
			delete(l.entries, k)
		}
	}
}

// Clear forgets everything.
func (l *backoff) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.entries)
}

// old says that no failure came for twice the longest term: whoever fails then begins again.
func (e entry) old(now time.Time) bool { return now.Sub(e.failed) > 2*maxDelay }
