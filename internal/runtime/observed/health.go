package observed

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// healthThreshold is the maximum time without a list or an event of the runtime. The kubelet uses the same value.
const healthThreshold = 3 * time.Minute

// state is the state of the connection to the runtime.
type state struct {
	mu sync.Mutex
	// up means that the event stream is connected, since upSince; otherwise it broke at brokeAt.
	up      bool
	upSince time.Time
	brokeAt time.Time
	// listBegun is when the newest list started, listed when the newest successful list started.
	listBegun time.Time
	listed    time.Time
	// incomplete means that the newest list is missing details.
	incomplete bool
}

func (st *state) streaming() bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return st.up
}

func (st *state) streamUp(now time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.up, st.upSince = true, now
}

// streamDown records that the event stream isn't connected. It reports whether it was connected before, and since
// when.
func (st *state) streamDown(now time.Time) (wasUp bool, since time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	wasUp = st.up
	if wasUp {
		st.brokeAt = now
	}
	st.up = false
	return wasUp, st.upSince
}

func (st *state) beginList(now time.Time) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.listBegun = now
}

// endList records a successful list that was started at begun. It returns the time between the starts of the
// previous successful list and this one; 0 for the first list.
func (st *state) endList(begun time.Time, incomplete bool) time.Duration {
	st.mu.Lock()
	defer st.mu.Unlock()
	var interval time.Duration
	if !st.listed.IsZero() {
		interval = begun.Sub(st.listed)
	}
	st.listed, st.incomplete = begun, incomplete
	return interval
}

// olderThanList reports whether a report of the given time is older than the start of the newest list.
func (st *state) olderThanList(at time.Time) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	return !st.listBegun.IsZero() && at.Before(st.listBegun)
}

// nextList returns how long to wait before the next list.
func (st *state) nextList(period time.Duration) time.Duration {
	st.mu.Lock()
	defer st.mu.Unlock()
	switch {
	case !st.up:
		return pollPeriod
	case st.listBegun.Before(st.upSince.Add(subscribeTime)):
		return subscribeTime
	case st.incomplete:
		return min(period, incompletePeriod)
	}
	return period
}

// Healthy returns an error if the store may be out of date, as the kubelet's PLEG does: the last complete list and
// the end of the event stream are both more than 3 minutes ago. While the stream is up, the relist period is added
// to these 3 minutes.
func (s *Store) Healthy(now time.Time) error {
	st := &s.state
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.listed.IsZero() {
		return errors.New("pod lifecycle events: the runtime hasn't been listed yet: is it running?")
	}
	seen, threshold := st.listed, healthThreshold
	if st.up {
		threshold += s.period
	} else if st.brokeAt.After(seen) {
		seen = st.brokeAt
	}
	if ago := now.Sub(seen); ago > threshold {
		return fmt.Errorf("pod lifecycle events: the runtime was last seen active %s ago; the threshold is %s",
			ago.Round(time.Second), threshold)
	}
	return nil
}
