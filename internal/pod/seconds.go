package pod

import (
	"math"
	"time"
)

// Seconds converts the API's seconds to a duration. More than a time.Duration can hold becomes the longest one, some
// 292 years: int64 fields such as terminationGracePeriodSeconds allow more, and a product that overflows would be a
// wait of no time at all.
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
