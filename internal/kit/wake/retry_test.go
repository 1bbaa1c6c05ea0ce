package wake

import (
	"testing"
	"time"
)

func TestRetry(t *testing.T) {
	var r Retry
	for range 2 {
		for n, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60} {
			if got := r.Failed(); got != want*time.Second {
				t.Errorf("failure %d: %s", n, got)
			}
		}
		r.Succeeded()
	}
}
