package pod

import (
	"math"
	"testing"
	"time"
)

func TestSecondsSaturate(t *testing.T) {
	for n, want := range map[int64]time.Duration{
		0: 0, 1: time.Second, -1: -time.Second, 9_223_372_036: 9_223_372_036 * time.Second,
		9_223_372_037: math.MaxInt64, math.MaxInt64: math.MaxInt64, -9_223_372_037: math.MinInt64, math.MinInt64: math.MinInt64,
	} {
		if got := Seconds(n); got != want {
			t.Errorf("%d s are %s, want %s", n, got, want)
		}
	}
	if got := Seconds(int32(math.MaxInt32)); got != math.MaxInt32*time.Second {
		t.Errorf("an int32 is %s", got)
	}
}
