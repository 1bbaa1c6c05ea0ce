package pod

import (
	"math"
	"time"
)

// Seconds converts a number of seconds in the API to a duration. A number that is too large for a time.Duration
// becomes the longest duration, some 292 years: int64 fields such as terminationGracePeriodSeconds may be larger,
// and the overflow would make the duration negative or short.
func Seconds[N ~int | ~int32 | ~int64](n N) time.Duration {
	const most = math.MaxInt64 / int64(time.Second)
	switch s := int64(n); {
	case s > most:
		return math.MaxInt64
	case s < -most:
		return math.MinInt64
	default:
		return time.Duration(s) * time.Second
	}
}
