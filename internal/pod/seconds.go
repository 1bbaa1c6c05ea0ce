package pod

import (
	"math"
	"time"
)

// Seconds is a number of seconds as the API has it. What a time.Duration can't hold is the longest, some 292 years: int64
// fields such as terminationGracePeriodSeconds allow more, and a product that overflows would be a wait of none at all.
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
