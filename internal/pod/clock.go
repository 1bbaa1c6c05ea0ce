package pod

import "time"

// ClockStep is a change of the machine's wall clock by date(1) or NTP. Gradual corrections (NTP slews) aren't steps.
type ClockStep struct {
	// From is the time on the clock before the step.
	From time.Time
	// By is the size of the step, negative if the clock was set back.
	By time.Duration
}

// Equal reports whether both are the same step.
func (s ClockStep) Equal(other ClockStep) bool { return s.From.Equal(other.From) && s.By == other.By }

// Anchored adds a monotonic reading to a stored time, if now has one: then the time stays the same moment when the
// clock is set. A zero time is returned as it is.
func Anchored(t, now time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return now.Add(t.Sub(now))
}

// ClockSlack is how far a reported time may lie after the time of a decision although the clock wasn't set between
// them: the runtime may report an event just after the decision read the clock.
const ClockSlack = time.Minute

// AnchoredPast is Anchored for the time of a past event. A time in the future, which a clock shows before it is set
// back, counts as now.
func AnchoredPast(t, now time.Time) time.Time {
	if t.After(now) {
		t = now
	}
	return Anchored(t, now)
}

// OnClock converts a time of the runtime, a file or the API server to the time that the wall clock would have shown if
// all steps had already happened before that time. steps are sorted, oldest first. Differences of converted times are
// durations, even if the clock was set between them.
//
// A time doesn't say before which steps it was read. OnClock takes the latest period between two steps in which the
// clock can have shown it: a time that the clock showed twice, because it was set back, belongs to the later period. So
// the result changes once the clock shows the time again. Callers that need a time for longer therefore convert it once
// and store the result (Anchored).
//
// Times with a monotonic reading, which steps don't change, and zero times are returned as they are.
func OnClock(t, now time.Time, steps []ClockStep) time.Time {
	if len(steps) == 0 || t.IsZero() || t != t.Round(0) {
		return t
	}
	end := now.Round(0).Add(ClockSlack) // the end of the period after step i
	var since time.Duration             // the sum of the steps after that period
	for i := len(steps) - 1; ; i-- {
		if i < 0 {
			if !t.After(end) {
				return t.Add(since)
			}
			return t // the clock never showed it
		}
		s := &steps[i]
		if begin := s.From.Add(s.By); !t.After(end) && !t.Before(begin) {
			return t.Add(since)
		}
		end, since = s.From, since+s.By
	}
}
