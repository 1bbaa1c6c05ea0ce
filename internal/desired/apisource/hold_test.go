package apisource

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/podobject"
	"github.com/deckhand-node/deckhand/internal/cluster/podobject/podobjecttest"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// doubtful is a source of an agent that knows pods a and b, of a node's object with the UID "old".
type doubtful struct {
	server *podobjecttest.Server
	sink   *sourcetest.Recorder

	sync.Mutex
	// there is the UID of the node's object at the API server, asked how often that was asked for, and broken why it can't be.
	there  types.UID
	broken error
	asked  int
	events []pod.Event
}

func (d *doubtful) set(there types.UID, broken error) {
	d.Lock()
	defer d.Unlock()
	d.there, d.broken = there, broken
}

// told are the events so far, and how often it was asked.
func (d *doubtful) told() ([]pod.Event, int) {
	d.Lock()
	defer d.Unlock()
	return slices.Clone(d.events), d.asked
}

func (d *doubtful) names() string {
	r, _ := d.sink.Last()
	var names []string
	for _, name := range []string{"a", "b", "c"} {
		for _, c := range r.Claims {
			if c.Desired.Pod.Name == name {
				names = append(names, name+"/"+string(c.Desired.Pod.UID))
			}
		}
	}
	return strings.Join(names, " ")
}

// problem is what a person is told.
func (d *doubtful) problem() string {
	r, _ := d.sink.Last()
	text := ""
	for _, p := range r.Problems {
		text += p.Message
	}
	return text
}

const holdFor = 5 * time.Minute

// life runs an agent, which has its file at a path, for as long as do takes.
func (d *doubtful) life(t *testing.T, path string, do func()) {
	store, cache := known(t, path), podobject.NewCache(d.server, logr.Discard())
	s := New(Config{Objects: cache, Sink: d.sink, Known: store, Reach: (&wake.Group{}).Subscribe, Hold: holdFor, Phase: func(types.UID) v1.PodPhase { return "" },
		NodeUID: func() types.UID { return "old" }, Log: logr.Discard(), Event: func(e pod.Event) {
			d.Lock()
			defer d.Unlock()
			d.events = append(d.events, e)
		},
		Ask: func(context.Context) (node types.UID, pods []types.UID, err error) {
			d.Lock()
			defer d.Unlock()
			d.asked++
			for _, name := range []string{"a", "b", "c"} {
				if p := d.server.Get("default", name); p != nil {
					pods = append(pods, p.UID)
				}
			}
			return d.there, pods, d.broken
		}})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = store.Run(ctx) })
	running.Go(func() { _ = cache.Run(ctx) })
	running.Go(func() { _ = s.Run(ctx) })
	time.Sleep(2 * time.Second)
	do()
	cancel()
	running.Wait()
}

// relist has all be listed again.
func (d *doubtful) relist() {
	d.server.Relist()
	time.Sleep(100 * time.Millisecond)
	synctest.Wait()
}

// lose has the API server lose the pods.
func (d *doubtful) lose(there types.UID, broken error) {
	d.server.Remove("default", "a")
	d.server.Remove("default", "b")
	d.set(there, broken)
}

// TestHold: an API server that has lost all pods, and the node's object with them, is believed after a while only.
func TestHold(t *testing.T) {
	for name, tc := range map[string]struct {
		// there and broken are as of the list in which the pods are gone, and then what is so a moment later.
		there  types.UID
		broken error
		then   func(t *testing.T, d *doubtful, relist func())
	}{
		"another node": {"new", nil, func(t *testing.T, d *doubtful, relist func()) {
			if e, _ := d.told(); d.names() != "a/a-uid b/b-uid" || !strings.Contains(d.problem(), "UID new") || len(e) != 1 || e[0].Reason != pod.ReasonPodsHeld || e[0].Type != v1.EventTypeWarning {
				t.Errorf("%q, %q, %+v", d.names(), d.problem(), e)
			}
			relist() // again, the same
			time.Sleep(holdFor - 10*time.Second)
			if e, _ := d.told(); d.names() != "a/a-uid b/b-uid" || len(e) != 1 {
				t.Errorf("shortly before the end: %q, %+v", d.names(), e)
			}
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if e, _ := d.told(); d.names() != "" || d.problem() != "" || len(e) != 2 {
				t.Errorf("after it: %q, %q, %+v", d.names(), d.problem(), e)
			}
		}},
		"no node": {"", nil, func(t *testing.T, d *doubtful, relist func()) {
			if d.names() != "a/a-uid b/b-uid" || !strings.Contains(d.problem(), "has no object of this node") {
				t.Errorf("%q, %q", d.names(), d.problem())
			}
		}},
		"the same node": {"old", nil, func(t *testing.T, d *doubtful, relist func()) {
			if e, asked := d.told(); d.names() != "" || asked != 1 || len(e) > 0 {
				t.Errorf("%q, asked %d times, %+v", d.names(), asked, e)
			}
		}},
		"it can't be asked": {"old", errors.New("it is away again"), func(t *testing.T, d *doubtful, relist func()) {
			time.Sleep(time.Hour)
			if d.names() != "a/a-uid b/b-uid" {
				t.Errorf("%q", d.names())
			}
			d.set("old", nil)
			time.Sleep(2 * askAgain)
			synctest.Wait()
			if d.names() != "" {
				t.Errorf("when it answers: %q", d.names())
			}
		}},
		"it can't be asked, and is restored": {"old", errors.New("it is away again"), func(t *testing.T, d *doubtful, relist func()) {
			d.server.Hold(true)
			d.server.Put(newPod("a"))
			d.set("old", nil)
			time.Sleep(time.Hour)
			if d.names() != "a/a-uid b/b-uid" {
				t.Errorf("before all is listed: %q", d.names())
			}
			relist()
			if d.names() != "a/a-uid" {
				t.Errorf("after it: %q", d.names())
			}
		}},
		"it is away at the end": {"new", nil, func(t *testing.T, d *doubtful, relist func()) {
			d.server.Hold(true)
			d.set("", errors.New("it is away"))
			time.Sleep(2 * holdFor)
			if e, _ := d.told(); d.names() != "a/a-uid b/b-uid" || d.problem() == "" || len(e) != 1 {
				t.Errorf("while it is away: %q, %q, %+v", d.names(), d.problem(), e)
			}
			d.server.Put(newPod("a")) // restored
			d.server.Put(newPod("b"))
			d.set("new", nil)
			time.Sleep(2 * askAgain)
			synctest.Wait()
			if d.names() != "a/a-uid b/b-uid" {
				t.Errorf("before all is listed: %q", d.names())
			}
			relist()
			if d.names() != "a/a-uid b/b-uid" || d.problem() != "" {
				t.Errorf("after it: %q, %q", d.names(), d.problem())
			}
		}},
		"it is away at the end, and has nothing then": {"new", nil, func(t *testing.T, d *doubtful, relist func()) {
			d.set("", errors.New("it is away"))
			time.Sleep(2 * holdFor)
			d.set("new", nil)
			time.Sleep(2 * askAgain)
			synctest.Wait()
			if d.names() != "" || d.problem() != "" {
				t.Errorf("%q, %q", d.names(), d.problem())
			}
		}},
		"the data is restored": {"new", nil, func(t *testing.T, d *doubtful, relist func()) {
			d.server.Put(newPod("a"))
			time.Sleep(time.Second)
			synctest.Wait()
			if e, _ := d.told(); d.names() != "a/a-uid" || d.problem() != "" || len(e) != 2 {
				t.Errorf("%q, %q, %+v", d.names(), d.problem(), e)
			}
		}},
		"the kubeconfig is corrected": {"new", nil, func(t *testing.T, d *doubtful, relist func()) {
			d.set("old", nil)
			relist()
			if d.names() != "" || d.problem() != "" {
				t.Errorf("%q, %q", d.names(), d.problem())
			}
		}},
		"new pods come": {"new", nil, func(t *testing.T, d *doubtful, relist func()) {
			d.server.Put(newPod("c"))
			other := newPod("a")
			other.UID = "a-other"
			d.server.Put(other)
			time.Sleep(time.Second)
			synctest.Wait()
			if d.names() != "a/a-other b/b-uid c/c-uid" {
				t.Errorf("%q", d.names())
			}
			time.Sleep(holdFor)
			synctest.Wait()
			if d.names() != "a/a-other c/c-uid" {
				t.Errorf("after it: %q", d.names())
			}
		}},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(name+map[bool]string{false: "", true: ", after a restart"}[restarted], func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					path := filepath.Join(t.TempDir(), "known")
					d := &doubtful{server: podobjecttest.NewServer(), sink: sourcetest.NewRecorder(), there: "old"}
					d.server.Put(newPod("a"))
					d.server.Put(newPod("b"))
					if restarted {
						d.life(t, path, func() {})
						d.lose(tc.there, tc.broken)
						d.life(t, path, func() { tc.then(t, d, d.relist) })
						return
					}
					d.life(t, path, func() {
						d.server.Hold(true) // the watch is broken
						d.lose(tc.there, tc.broken)
						d.relist()
						d.server.Hold(false)
						tc.then(t, d, d.relist)
					})
				})
			})
		}
	}
}

// TestHoldOutlivesTheAgent: pods of the server that has lost the others don't make its list count for the next agent.
func TestHoldOutlivesTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "known")
		d := &doubtful{server: podobjecttest.NewServer(), sink: sourcetest.NewRecorder(), there: "old"}
		d.server.Put(newPod("a"))
		d.server.Put(newPod("b"))
		d.life(t, path, func() {
			d.server.Hold(true)
			d.lose("new", nil)
			d.relist()
			d.server.Hold(false)
			d.server.Put(newPod("c"))
			time.Sleep(2 * time.Second)
		})
		d.life(t, path, func() {
			if d.names() != "a/a-uid b/b-uid c/c-uid" || d.problem() == "" {
				t.Errorf("after a restart: %q, %q", d.names(), d.problem())
			}
			time.Sleep(holdFor)
			synctest.Wait()
			if d.names() != "c/c-uid" || d.problem() != "" {
				t.Errorf("after the hold: %q, %q", d.names(), d.problem())
			}
		})
		d.life(t, path, func() {
			if d.names() != "c/c-uid" || d.problem() != "" {
				t.Errorf("once it is over: %q, %q", d.names(), d.problem())
			}
		})
	})
}
