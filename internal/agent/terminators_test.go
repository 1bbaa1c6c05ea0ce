package agent_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// curfew is a terminator: it ends the pods that it is given.
type curfew struct {
	mu        sync.Mutex
	ends      map[types.UID]*pod.PodTermination
	forgotten []types.UID
}

func (c *curfew) end(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	grace := time.Second
	c.ends[uid] = &pod.PodTermination{At: time.Now(), Grace: &grace, Reason: "Curfew", Message: "it is late", Annotations: map[string]string{"bell": "rung"}}
}

func (c *curfew) Termination(uid types.UID) *pod.PodTermination {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ends[uid]
}

func (c *curfew) Forget(uid types.UID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ends, uid)
	c.forgotten = append(c.forgotten, uid)
}

// TestAnotherTerminator: one more member of the list is all that a terminator needs to end pods.
func TestAnotherTerminator(t *testing.T) {
	c := &curfew{ends: map[types.UID]*pod.PodTermination{}}
	r := newRig(t)
	r.between.Workers = func(conf *worker.Config) {
		conf.Terminators = append(conf.Terminators, worker.PodTerminator{Termination: c.Termination, Forget: c.Forget})
		conf.Resync = 100 * time.Millisecond // in place of its Wake
	}
	const spec = "  containers: [{name: main, image: IMAGE}]"
	r.want("late", spec)
	r.want("other", spec)
	r.up()
	r.await("both run", r.running("late/main", "other/main"))
	var uid types.UID
	r.awaitPod("late", func(v local.PodView) string { uid = v.Pod.UID; return "" })
	c.end(uid)
	r.awaitPod("late", func(v local.PodView) string {
		if s := v.Pod.Status; s.Phase != v1.PodFailed || s.Reason != "Curfew" || s.Message != "it is late" {
			return fmt.Sprintf("it is %s: %s, %s", s.Phase, s.Reason, s.Message)
		}
		return ""
	})
	r.await("one event tells why, with the annotations of the termination", func() string {
		list, err := local.NewClient(local.SocketPath(r.path("root"))).Events(t.Context())
		if err != nil {
			return err.Error()
		}
		list = slices.DeleteFunc(list, func(e local.Event) bool { return e.Reason != "Curfew" })
		if len(list) != 1 || list[0].Count != 1 || list[0].Type != v1.EventTypeWarning || list[0].Annotations["bell"] != "rung" {
			return fmt.Sprintf("events %+v", list)
		}
		return ""
	})
	r.await("the other one runs on", r.running("other/main"))
	r.unwant("late")
	r.await("the pod is gone, and its termination with it", func() string {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !slices.Equal(c.forgotten, []types.UID{uid}) {
			return fmt.Sprintf("forgotten are %v", c.forgotten)
		}
		return r.nothing("late")()
	})
}
