package worker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// TestALoopThatStandsStill: two periods without a turn are too long, and never less than 10 s.
func TestALoopThatStandsStill(t *testing.T) {
	begun := time.Now()
	for _, c := range []struct {
		resync, still time.Duration
		healthy       bool
	}{
		{time.Minute, 2 * time.Minute, true},
		{time.Minute, 2*time.Minute + time.Second, false},
		{time.Second, 10 * time.Second, true},
		{time.Second, 11 * time.Second, false},
	} {
		p := New(NewWaker(), Config{Resync: c.resync})
		if err := p.Healthy(begun.Add(time.Hour)); err != nil {
			t.Errorf("before it has begun: %v", err)
		}
		p.heartbeat = begun
		if err := p.Healthy(begun.Add(c.still)); (err == nil) != c.healthy {
			t.Errorf("after %v with a resync each %v: %v", c.still, c.resync, err)
		}
	}
}

// TestWakingNobody: what is woken before there is a worker isn't lost.
func TestWakingNobody(t *testing.T) {
	w := NewWaker()
	for range 3 {
		w.Wake("a")
		w.WakeAll()
		w.WakeAwaiting(pod.Object{})
	}
	p := New(w, Config{})
	select {
	case <-p.look:
	default:
		t.Error("the pool that is built after it doesn't look")
	}
}

func TestWhoWaitsForWhatIsWoken(t *testing.T) {
	conf, kata := pod.Object{Kind: "ConfigMap", Namespace: "a", Name: "conf"}, pod.Object{Kind: "RuntimeClass", Name: "kata"}
	login, claim := pod.Object{Kind: "Secret", Namespace: "a"}, pod.Object{Kind: "PersistentVolumeClaim", Namespace: "a", Name: "data"}
	awaited := map[types.UID][]pod.Object{"conf": {conf}, "both": {conf, kata}, "login": {login}, "claim": {claim}, "none": nil}
	for _, c := range []struct {
		changed []pod.Object
		want    []types.UID
	}{
		{nil, nil},
		{[]pod.Object{conf}, []types.UID{"both", "conf"}},
		{[]pod.Object{kata, {Kind: "ConfigMap", Namespace: "b", Name: "conf"}}, []types.UID{"both"}},
		{[]pod.Object{{Kind: "Secret", Namespace: "a", Name: "conf"}}, []types.UID{"login"}},
		{[]pod.Object{{Kind: "Secret", Namespace: "b", Name: "conf"}}, nil},
		{[]pod.Object{{Kind: "PersistentVolumeClaim"}}, []types.UID{"claim"}},
		{[]pod.Object{{Kind: "Secret", Namespace: "a"}}, []types.UID{"login"}},
		{[]pod.Object{{}}, []types.UID{"both", "claim", "conf", "login"}},
	} {
		k := NewWaker()
		workers := map[types.UID]*worker{}
		for uid, objects := range awaited {
			workers[uid] = &worker{signal: wake.NewSlot()}
			k.setAwaiting(workers[uid], []pod.Object{conf, claim})
			k.setAwaiting(workers[uid], objects)
		}
		k.WakeAwaiting(c.changed...)
		var got []types.UID
		for uid, w := range workers {
			if len(w.signal) > 0 {
				got = append(got, uid)
			}
			k.setAwaiting(w, nil)
		}
		slices.Sort(got)
		if !slices.Equal(got, c.want) {
			t.Errorf("%v woke %v, want %v", c.changed, got, c.want)
		}
		if len(k.awaiting) > 0 {
			t.Errorf("who waits for nothing any more is kept: %v", k.awaiting)
		}
	}
}

// BenchmarkWakeAwaiting: 2,000 pods wait, all for the object that changes or for one each.
func BenchmarkWakeAwaiting(b *testing.B) {
	for name, of := range map[string]func(int) string{"one object": func(int) string { return "o" }, "one each": func(n int) string { return fmt.Sprint("o", n) }} {
		b.Run(name, func(b *testing.B) {
			k := NewWaker()
			for n := range 2000 {
				k.setAwaiting(&worker{signal: wake.NewSlot()}, []pod.Object{{Kind: "Secret", Namespace: "default", Name: of(n)}})
			}
			for b.Loop() {
				k.WakeAwaiting(pod.Object{Kind: "Secret", Namespace: "default", Name: of(7)})
			}
		})
	}
}
