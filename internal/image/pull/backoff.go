package pull

import (
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// The kubelet's delays. The documentation specifies the longest one, five minutes:
// https://kubernetes.io/docs/concepts/containers/images/#imagepullbackoff.
const (
	firstDelay = 10 * time.Second
	maxDelay   = 300 * time.Second
)

// backoffKey is an image with the credentials that it was pulled with.
type backoffKey struct {
	Image string
	// Login identifies the credentials without containing them.
	Login string
}

// backoffState describes the failed pulls of an image.
type backoffState struct {
	// Failures counts consecutive failures; at least 1.
	Failures int
	// Until is when the next pull is due; requests before that fail.
	Until time.Time
	// Last is the failure of the last pull.
	Last pod.Failure
}

type entry struct {
	backoffState
	failed time.Time
	delay  time.Duration
}

// backoff records failed pulls and when to retry them. It is safe for concurrent use. The zero value isn't usable.
type backoff struct {
	mu      sync.Mutex
	entries map[backoffKey]entry
}

// newBackoff returns a backoff without failures.
func newBackoff() *backoff { return &backoff{entries: map[backoffKey]entry{}} }

// Get returns the recent failures of an image; false if there are none.
func (l *backoff) Get(k backoffKey) (backoffState, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e, ok := l.entries[k]
	if !ok || e.old(time.Now()) {
		return backoffState{}, false
	}
	return e.backoffState, true
}

// Failed records a failed pull and returns when the next one is due: after 10 seconds, twice as long after each
// further failure, and at most 300 seconds. A failure before the current delay has ended doesn't count as another
// one: that pull was started earlier.
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

// DiskFreed ends the delays of images whose last pull failed because of a disk. It doesn't clear their failures: after
// a further failure, the delay is longer.
func (l *backoff) DiskFreed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, e := range l.entries {
		if e.Last.Disk {
			e.Until = e.failed
			l.entries[k] = e
		}
	}
}

// Succeeded clears the failures of an image with these credentials.
func (l *backoff) Succeeded(k backoffKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.entries, k)
}

// Forget clears the failures of an image with any credentials.
func (l *backoff) Forget(image string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.entries {
		if k.Image == image {
			delete(l.entries, k)
		}
	}
}

// Clear clears the failures of all images.
func (l *backoff) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.entries)
}

// old reports whether the last failure was longer ago than twice the longest delay: the backoff then starts over.
func (e entry) old(now time.Time) bool { return now.Sub(e.failed) > 2*maxDelay }
