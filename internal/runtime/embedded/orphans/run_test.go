package orphans

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A few looks after each start, and then none until the next.
func TestRunLooksAfterEachStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		started := make(chan struct{}, 1)
		begin := time.Now()
		var at []time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			run(ctx, started, func(context.Context) bool {
				at = append(at, time.Since(begin))
				return len(at) == 2 // The second look finds something.
			})
		}()
		expect := func(what string, want ...time.Duration) {
			t.Helper()
			synctest.Wait()
			if !slices.Equal(at, want) {
				t.Errorf("%s it has looked at %v, want %v", what, at, want)
			}
		}
		time.Sleep(time.Hour)
		expect("before a start")

		begin = time.Now()
		started <- struct{}{}
		time.Sleep(24 * time.Hour)
		want := []time.Duration{0, 20 * time.Second, 35 * time.Second, 75 * time.Second, 75*time.Second + 9*time.Minute}
		expect("after a start", want...)

		at, begin = []time.Duration{-1, -1}, time.Now() // These find nothing.
		started <- struct{}{}
		time.Sleep(10 * time.Second)
		started <- struct{}{}
		time.Sleep(24 * time.Hour)
		expect("after two starts", -1, -1, 0, 10*time.Second, 30*time.Second, 70*time.Second, 70*time.Second+9*time.Minute)
		cancel()
		<-done
	})
}
