package wake_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

func woken(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func TestSlotKeepsOneWakeUp(t *testing.T) {
	s := wake.NewSlot()
	if woken(s) {
		t.Error("a new slot is full")
	}
	s.Wake()
	s.Wake()
	if !woken(s) || woken(s) {
		t.Error("two wake-ups that nobody received in between must be one")
	}
	s.Wake()
	if !woken(s) {
		t.Error("a slot that was emptied can't be filled again")
	}
}

func TestGroupWakesWhoIsSubscribed(t *testing.T) {
	var g wake.Group
	g.Wake()
	a, stopA := g.Subscribe()
	b, stopB := g.Subscribe()
	defer stopB()
	g.Wake()
	if !woken(a) || !woken(b) || g.Count() != 2 {
		t.Error("both must be woken")
	}
	stopA()
	stopA()
	g.Wake()
	if woken(a) || !woken(b) || g.Count() != 1 {
		t.Error("only the second must be woken")
	}
}

// A change that comes before its wake-up is seen by whoever is woken by it.
func TestNoWakeUpIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 1000
		var g wake.Group
		var mu sync.Mutex
		var state int
		var readers sync.WaitGroup
		for range 3 {
			changed, stop := g.Subscribe()
			readers.Go(func() {
				defer stop()
				for seen := 0; seen < most; {
					<-changed
					mu.Lock()
					seen = state
					mu.Unlock()
				}
			})
		}
		for range most {
			mu.Lock()
			state++
			mu.Unlock()
			g.Wake()
		}
		readers.Wait()
	})
}

func TestKeyedKeepsEachKeyOnce(t *testing.T) {
	k := wake.NewKeyed[string]()
	k.Wake()
	if woken(k.Woken()) || len(k.Drain()) > 0 {
		t.Error("it was woken for nothing")
	}
	var all sync.WaitGroup
	for n := range 100 {
		all.Go(func() { k.Wake([]string{"a", "b"}[n%2], "c") })
	}
	all.Wait()
	got := k.Drain()
	slices.Sort(got)
	if !woken(k.Woken()) || woken(k.Woken()) || !slices.Equal(got, []string{"a", "b", "c"}) || len(k.Drain()) > 0 {
		t.Errorf("woken for %q", got)
	}
	k.Wake("a")
	if !woken(k.Woken()) || !slices.Equal(k.Drain(), []string{"a"}) {
		t.Error("it can't be woken again for the same")
	}
}
