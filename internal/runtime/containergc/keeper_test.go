package containergc

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is what the runtime has, and who is told.
type node struct {
	mu     sync.Mutex
	pods   []*pod.Observed
	looked []types.UID
	lists  int
}

func (n *node) All() []*pod.Observed {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lists++
	return n.pods
}

func (n *node) set(pods ...*pod.Observed) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = pods
}

func (n *node) look(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.looked = append(n.looked, uid)
}

func (n *node) taken() (looked []types.UID, lists int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	looked, lists = n.looked, n.lists
	n.looked, n.lists = nil, 0
	return looked, lists
}

// wantTold checks what happened since the last call.
func (n *node) wantTold(t *testing.T, looks int, want ...types.UID) {
	t.Helper()
	synctest.Wait()
	told, lists := n.taken()
	slices.Sort(told)
	if !slices.Equal(told, want) || lists != looks {
		t.Errorf("told %v in %d looks, want %v in %d", told, lists, want, looks)
	}
}

func start(t *testing.T, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestKeeper(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		k := NewKeeper(Limits{Total: 4}, n, n.look, testr.New(t))
		defer start(t, k.Run)()
		synctest.Wait()
		n.taken()
		p, q := crashed("p", "a", 3), crashed("q", "b", 4)
		n.set(p, q)
		wantExcess := func(ofP, ofQ []string) {
			t.Helper()
			if p, q := k.Excess("p"), k.Excess("q"); !slices.Equal(p, ofP) || !slices.Equal(q, ofQ) {
				t.Errorf("excess %q and %q, want %q and %q", p, q, ofP, ofQ)
			}
		}
		for range 10 {
			k.Wake()
			time.Sleep(every / 20)
		}
		if _, lists := n.taken(); lists > 0 {
			t.Errorf("%d looks within half a minute of the last one", lists)
		}
		wantExcess(nil, nil)
		time.Sleep(every)
		n.wantTold(t, 1, "p", "q")
		wantExcess([]string{"p/a/0"}, []string{"q/b/0", "q/b/1"})
		time.Sleep(every) // the last wake-up's
		n.wantTold(t, 1)

		// Who already knows isn't told again, who has less neither.
		n.set(p, &pod.Observed{UID: "q", Containers: q.Containers[:3]}, crashed("r", "c", 1))
		k.Wake()
		time.Sleep(every)
		n.wantTold(t, 1, "p")
		wantExcess([]string{"p/a/0", "p/a/1"}, []string{"q/b/1"})

		// Nothing is excess once the workers have removed it, and nothing happens while nothing changes.
		n.set(&pod.Observed{UID: "p", Containers: p.Containers[:1]}, &pod.Observed{UID: "q", Containers: q.Containers[:2]})
		k.Wake()
		time.Sleep(every)
		n.wantTold(t, 1)
		wantExcess(nil, nil)
		time.Sleep(24 * time.Hour)
		n.wantTold(t, 0)
	})
}

func TestKeeperLooksAgainWhenTheYoungAreOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		o := crashed("p", "a", 2)
		for i := range o.Containers {
			o.Containers[i].FinishedAt = time.Now()
		}
		n.set(o)
		k := NewKeeper(Limits{MinAge: time.Hour}, n, n.look, testr.New(t))
		defer start(t, k.Run)()
		time.Sleep(time.Hour - time.Second)
		synctest.Wait()
		if looked, _ := n.taken(); len(looked) > 0 {
			t.Errorf("told %v too early", looked)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if looked, _ := n.taken(); !slices.Equal(looked, []types.UID{"p"}) {
			t.Errorf("told %v", looked)
		}
	})
}

func TestKeeperWithoutLimitOfTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		k := NewKeeper(Limits{Total: -1}, n, n.look, testr.New(t))
		stop := start(t, k.Run)
		n.set(crashed("p", "a", 3))
		k.Wake()
		time.Sleep(time.Hour)
		if _, lists := n.taken(); lists > 0 {
			t.Errorf("%d looks", lists)
		}
		if s := k.Excess("p"); s != nil {
			t.Errorf("excess %q", s)
		}
		stop()
	})
}

// After the clock was set back, how old an instance is that ended in the future isn't known: it stays for MinAge.
func TestKeeperAfterTheClockWasSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		o := crashed("p", "a", 2)
		for i := range o.Containers {
			o.Containers[i].FinishedAt = time.Now().Add(24 * time.Hour)
		}
		n.set(o)
		k := NewKeeper(Limits{MinAge: time.Hour}, n, n.look, testr.New(t))
		defer start(t, k.Run)()
		time.Sleep(30 * time.Minute)
		k.Wake()
		time.Sleep(30*time.Minute - time.Second)
		synctest.Wait()
		if looked, _ := n.taken(); len(looked) > 0 {
			t.Errorf("told %v too early", looked)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if looked, _ := n.taken(); !slices.Equal(looked, []types.UID{"p"}) {
			t.Errorf("told %v", looked)
		}
	})
}

func BenchmarkChoose(b *testing.B) {
	var pods []*pod.Observed
	for range 2000 {
		pods = append(pods, crashed("p", "a", 3))
	}
	b.ReportAllocs()
	for b.Loop() {
		Choose(pods, Limits{Total: 5000}, now, nil)
	}
}

// On request all ended instances are to go, the newest ones included, until no more of them disappear.
func TestFreeNow(t *testing.T) {
	for _, total := range []int{-1, 10} {
		synctest.Test(t, func(t *testing.T) {
			n := &node{}
			dead := func(ids ...string) *pod.Observed {
				o := &pod.Observed{UID: "a", Containers: []pod.Container{{ID: "runs", Name: "x", State: pod.ContainerRunning}}}
				for _, id := range ids {
					o.Containers = append(o.Containers, pod.Container{ID: id, Name: id, State: pod.ContainerExited})
				}
				return o
			}
			n.set(dead("1", "2", "3"))
			k := NewKeeper(Limits{Total: total}, n, n.look, testr.New(t))
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 2)
			go func() { ended <- k.Run(ctx) }()
			synctest.Wait()
			began, done := time.Now(), make(chan error, 1)
			go func() { done <- k.FreeNow(ctx) }()
			synctest.Wait()
			if got := k.Excess("a"); !slices.Equal(got, []string{"1", "2", "3"}) || !slices.Contains(n.looked, "a") {
				t.Errorf("asked to remove %q of pods %q", got, n.looked)
			}
			time.Sleep(2 * time.Second)
			n.set(dead("3"))
			k.Wake()
			time.Sleep(2 * time.Second)
			k.Wake() // nothing has disappeared
			if err := <-done; err != nil || time.Since(began) != 2*time.Second+freed {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
			synctest.Wait()
			if got := k.Excess("a"); got != nil {
				t.Errorf("afterwards %q are to be removed", got)
			}
			n.set(dead())
			began = time.Now()
			if err := k.FreeNow(ctx); err != nil || time.Since(began) > 0 {
				t.Errorf("without ended instances: %v after %s", err, time.Since(began))
			}
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// Instances that end meanwhile, and those that can't be removed, don't hold it up.
func TestFreeNowEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &node{}
		crash := func(i int) *pod.Observed {
			return &pod.Observed{UID: "a", Containers: []pod.Container{{ID: "stays", Name: "x", State: pod.ContainerExited},
				{ID: string(rune('a' + i)), Name: "y", State: pod.ContainerExited}}}
		}
		n.set(crash(0))
		k := NewKeeper(Limits{Total: -1}, n, n.look, testr.New(t))
		done, began := make(chan error, 1), time.Now()
		go func() { done <- k.FreeNow(t.Context()) }()
		for i := range 20 {
			time.Sleep(time.Second)
			n.set(crash(i))
			k.Wake()
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}
