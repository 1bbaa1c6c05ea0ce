package wake_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

func TestDebounce(t *testing.T) {
	const gap, hour = time.Minute, time.Hour
	for name, tc := range map[string]struct {
		wakeAfter, next, want time.Duration // 0 for never
	}{
		"woken too soon":       {time.Second, hour, gap},
		"woken late":           {2 * gap, hour, 2 * gap},
		"the time has come":    {0, hour, hour},
		"the time is too soon": {0, time.Second, gap},
		"no time is set":       {3 * hour, 0, 3 * hour},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, began := wake.NewDebounce(gap), time.Now()
				if tc.wakeAfter > 0 {
					time.AfterFunc(tc.wakeAfter, func() { p.Wake(); p.Wake() })
				}
				var next time.Time
				if tc.next > 0 {
					next = began.Add(tc.next)
				}
				if !p.Await(t.Context(), began, next) || time.Since(began) != tc.want {
					t.Errorf("looks after %s, want %s", time.Since(began), tc.want)
				}
			})
		})
	}
}

func TestDebounceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := wake.NewDebounce(time.Minute)
		for _, woken := range []bool{false, true} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if woken {
				p.Wake()
			}
			if p.Await(ctx, time.Now(), time.Time{}) {
				t.Errorf("woken %v: looks again though it is to end", woken)
			}
			cancel()
		}
	})
}
