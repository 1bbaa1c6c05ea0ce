package observed

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// tally counts what it is told.
type tally struct {
	mu                                                    sync.Mutex
	lists, failures, events, discarded, connected, broken int
	interval, latency                                     time.Duration
}

func (c *tally) PodRelisted(time.Duration) {}

func (c *tally) Relisted(_ time.Time, _, interval time.Duration, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failures++
		return
	}
	c.lists++
	c.interval = interval
}

func (c *tally) Event(latency time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events++
	c.latency = latency
}

func (c *tally) EventDiscarded() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.discarded++
}

// want checks the counts.
func (c *tally) want(t *testing.T, when string, ok func() bool) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !ok() {
		t.Errorf("%s: %d lists, %d failed, interval %s; %d events, latency %s, %d discarded; connected %d times, broken %d times", when,
			c.lists, c.failures, c.interval, c.events, c.latency, c.discarded, c.connected, c.broken)
	}
}

func (c *tally) Stream(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.broken++
		return
	}
	c.connected++
}

func TestObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		var c tally
		x := &watcher{w: w, Store: New(w, Options{Log: logr.Discard(), Wake: func(types.UID) {}, Observer: &c})}
		x.run(t)
		time.Sleep(90 * time.Second)
		c.want(t, "after the start", func() bool { return c.lists == 2 && c.interval == subscribeTime && c.connected == 1 && c.broken == 0 })
		e := w.addSandbox("a", "s", 0)
		foreign := &runtimeapi.ContainerEventResponse{ContainerId: "f", CreatedAt: e.CreatedAt, PodSandboxStatus: &runtimeapi.PodSandboxStatus{Id: "f"}}
		time.Sleep(time.Second)
		w.send(e, foreign)
		synctest.Wait()
		c.want(t, "after events", func() bool { return c.events == 2 && c.latency == time.Second && c.discarded == 1 })
		w.setDown(true)
		synctest.Wait()
		c.want(t, "after the runtime went", func() bool { return c.broken == 1 && c.failures == 1 })
	})
}

// A pod that can't be looked at is found by the list that follows.
func TestRefreshFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.addSandbox("a", "s", 0)
		w.addContainer("s", "c", "main", 0)
		x := watch(w)
		x.run(t)
		time.Sleep(2 * subscribeTime)
		w.start("c")
		w.set(func() { w.down = true }) // for calls; the stream stays
		w.send(&runtimeapi.ContainerEventResponse{ContainerId: "c", CreatedAt: time.Now().UnixNano(), ContainerEventType: runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT})
		synctest.Wait()
		if got := x.one(t, "a"); got.State != pod.ContainerCreated {
			t.Fatalf("%+v", got)
		}
		w.set(func() { w.down = false })
		time.Sleep(maxRetry)
		synctest.Wait()
		if got := x.one(t, "a"); got.State != pod.ContainerRunning {
			t.Fatalf("%+v", got)
		}
	})
}
