package wake

import "time"

const retryFirst, retryMost = time.Second, time.Minute

// Retry has the delays between attempts at something that fails. They double, so that the end of a failure is found
// after at most twice its duration.
type Retry struct{ delay time.Duration }

// Failed returns the delay after another failed attempt.
func (r *Retry) Failed() time.Duration {
	r.delay = min(max(2*r.delay, retryFirst), retryMost)
	return r.delay
}

// Succeeded makes the next delay the shortest one.
func (r *Retry) Succeeded() { r.delay = 0 }
