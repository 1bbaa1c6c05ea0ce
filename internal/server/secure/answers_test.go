package secure

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestStrangersDontWait: who has more asked about strangers than is asked at once is refused soon, and doesn't hold connections.
func TestStrangersDontWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAnswers[bool](maxStrangers, strangerWait)
		began := time.Now()
		var refused, late atomic.Int32
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				_, err := a.get(t.Context(), fmt.Append(nil, i), func(ctx context.Context) (bool, time.Duration, error) {
					<-ctx.Done() // a server that doesn't answer
					return false, 0, ctx.Err()
				})
				if err == nil {
					t.Error("no error")
				}
				if took := time.Since(began); took <= strangerWait {
					refused.Add(1)
				} else if took > reviewLimit {
					late.Add(1)
				}
			})
		}
		all.Wait()
		if refused.Load() != 100-maxStrangers || late.Load() > 0 {
			t.Errorf("%d refused at once, %d late", refused.Load(), late.Load())
		}
	})
}
