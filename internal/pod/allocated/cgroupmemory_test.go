package allocated_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

const (
	mebi = 1 << 20
	gi   = 1 << 30
)

func TestHugePageSize(t *testing.T) {
	for name, want := range map[v1.ResourceName]string{
		"hugepages-2Mi": "2MB", "hugepages-1Gi": "1GB", "hugepages-64Ki": "64KB", "hugepages-32Mi": "32MB", "hugepages-16Gi": "16GB",
		"hugepages-2048Ki": "2MB", "hugepages-1024": "1KB",
		"hugepages-": "", "hugepages-big": "", "hugepages-0": "", "memory": "", "example.com/hugepages-2Mi": "",
	} {
		if got, ok := allocated.HugePageSize(name); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, ok, want)
		}
	}
}

func TestSwapShare(t *testing.T) {
	for _, c := range []struct{ request, memory, swap, want int64 }{
		{20 * gi, 40 * gi, 38 * gi, 19 * gi}, // the KEP's example
		{10 * gi, 40 * gi, 38 * gi, 19 * gi / 2},
		{gi, 3 * gi, 100, 33},
		{gi, 2 * gi, 0, 0},
		{0, 2 * gi, gi, 0},
		{-1, 2 * gi, gi, 0},
		{gi, 0, gi, 0},
		{3 * gi, 2 * gi, gi, gi},
		{math.MaxInt64 / 2, math.MaxInt64, math.MaxInt64, math.MaxInt64 / 2},
	} {
		if got := allocated.SwapShare(c.request, c.memory, c.swap); got != c.want {
			t.Errorf("%d of %d with %d of swap: %d, want %d", c.request, c.memory, c.swap, got, c.want)
		}
	}
}

// TestSharesNeverSumUpToMore: what a pod may swap covers what its containers may, and no more than all is shared out.
func TestSharesNeverSumUpToMore(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range 20_000 {
		memory := 1 + rnd.Int64N(1<<rnd.IntN(62))
		swap := rnd.Int64N(1 << rnd.IntN(62))
		var requests, shares int64
		for left := memory; left > 0 && rnd.IntN(8) > 0; {
			request := rnd.Int64N(left + 1)
			left -= request
			requests += request
			share := allocated.SwapShare(request, memory, swap)
			exact := new(big.Int).Mul(big.NewInt(request), big.NewInt(swap))
			if exact.Quo(exact, big.NewInt(memory)).Int64() != share {
				t.Fatalf("%d of %d with %d of swap: %d, want %v", request, memory, swap, share, exact)
			}
			shares += share
		}
		if whole := allocated.SwapShare(requests, memory, swap); shares > whole || whole > swap {
			t.Fatalf("shares sum up to %d, their sum's share is %d, of %d in all", shares, whole, swap)
		}
	}
}

func TestHigh(t *testing.T) {
	for _, c := range []struct {
		request, limit int64
		factor         float64
		page, want     int64
	}{
		// The tables of KEP-2570.
		{0, 1000 * mebi, 0.9, mebi, 900 * mebi}, {100 * mebi, 1000 * mebi, 0.9, mebi, 910 * mebi}, {500 * mebi, 1000 * mebi, 0.9, mebi, 950 * mebi}, {900 * mebi, 1000 * mebi, 0.9, mebi, 990 * mebi},
		{1000 * mebi, 1000 * mebi, 0.9, mebi, 0}, {500 * mebi, 1000 * mebi, 0.6, mebi, 800 * mebi}, {800 * mebi, 1000 * mebi, 0.6, mebi, 920 * mebi}, {850 * mebi, 1000 * mebi, 0.8, mebi, 970 * mebi}, {500 * mebi, 1000 * mebi, 0.4, mebi, 700 * mebi},
		{0, 10_000, 1, 4096, 8192},
		{4096, 4097, 0.9, 4096, 0}, // not even a page more than the request
		{0, 4000, 0.9, 4096, 0},
		{2 * gi, gi, 0.9, 4096, 0}, // requests more than the node has to give
		{0, gi, 0.9, 0, 0},
	} {
		if got := allocated.MemoryHigh(c.request, c.limit, c.factor, c.page); got != c.want {
			t.Errorf("request %d, limit %d, factor %v, pages of %d: %d, want %d", c.request, c.limit, c.factor, c.page, got, c.want)
		}
	}
}
