package allocated_test

import (
	"testing"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

func TestShares(t *testing.T) {
	for milli, want := range map[int64]int64{-5: 2, 0: 2, 1: 2, 2: 2, 100: 102, 250: 256, 1000: 1024, 256_000: 262144, 1_000_000: 262144} {
		if got := allocated.Shares(milli); got != want {
			t.Errorf("%d thousandths of a CPU are %d shares, want %d", milli, got, want)
		}
	}
}

func TestQuota(t *testing.T) {
	for _, c := range []struct{ milli, period, want int64 }{
		{0, 100_000, 0}, {-1, 100_000, 0}, {1, 100_000, 1000}, {10, 100_000, 1000}, {500, 100_000, 50_000}, {2000, 10_000, 20_000},
	} {
		if got := allocated.Quota(c.milli, c.period); got != c.want {
			t.Errorf("%d thousandths of a CPU in %d µs are %d µs, want %d", c.milli, c.period, got, c.want)
		}
	}
}
