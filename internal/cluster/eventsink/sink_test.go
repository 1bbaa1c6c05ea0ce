package eventsink

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/events"
)

// fakeAPI has events, as an API server has them.
type fakeAPI struct {
	mu   sync.Mutex
	has  map[string]*v1.Event
	made []string
	// calls counts all, fail answers one instead.
	calls int
	fail  func(verb, namespace string) error
	// late does the call, and loses its answer.
	late bool
	slow time.Duration
}

var resource = schema.GroupResource{Resource: "events"}

func (a *fakeAPI) call(ctx context.Context, verb, namespace string, do func() error) error {
	if a.slow > 0 {
		select {
		case <-time.After(a.slow):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.calls++
	if a.fail != nil {
		if err := a.fail(verb, namespace); err != nil {
			return err
		}
	}
	err := do()
	if a.late {
		a.late = false
		return errors.NewTimeoutError("no answer", 0)
	}
	return err
}

func (a *fakeAPI) Create(ctx context.Context, e *v1.Event) error {
	return a.call(ctx, "create", e.Namespace, func() error {
		key := e.Namespace + "/" + e.Name
		if a.has[key] != nil {
			return errors.NewAlreadyExists(resource, e.Name)
		}
		a.has[key] = e.DeepCopy()
		a.made = append(a.made, e.Message)
		return nil
	})
}

func (a *fakeAPI) Patch(ctx context.Context, namespace, name string, body []byte) error {
	return a.call(ctx, "patch", namespace, func() error {
		e := a.has[namespace+"/"+name]
		if e == nil {
			return errors.NewNotFound(resource, name)
		}
		return json.Unmarshal(body, e)
	})
}

// said are the events as "message xcount".
func (a *fakeAPI) said() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var list []string
	for _, e := range a.has {
		list = append(list, fmt.Sprintf("%s x%d", e.Message, e.Count))
	}
	slices.Sort(list)
	return list
}

func (a *fakeAPI) set(change func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	change()
}

type losses struct {
	mu   sync.Mutex
	told int
	lost map[string]int
}

func (l *losses) EventSent() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told++
}

func (l *losses) EventLost(why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lost[why]++
}

type rig struct {
	*events.Recorder
	api     *fakeAPI
	lost    *losses
	reached wake.Slot
}

// run has a sink run in a bubble of time.
func run(t *testing.T, do func(*rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := &rig{events.New(maxQueued), &fakeAPI{has: map[string]*v1.Event{}}, &losses{lost: map[string]int{}}, wake.NewSlot()}
		s := New(Config{Ring: r, API: r.api, Node: "n1", Reached: r.reached, Meter: r.lost, Log: logr.Discard()})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		do(r)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func (r *rig) happens(namespace, name string, reason pod.Reason, message string) {
	kind := v1.EventTypeNormal
	if reason == pod.ReasonUnhealthy {
		kind = v1.EventTypeWarning
	}
	r.Add(events.Entry{Type: kind, Reason: reason, Message: message, Object: v1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name}})
}

func (r *rig) want(t *testing.T, what string, want ...string) {
	t.Helper()
	synctest.Wait()
	if got := r.api.said(); !slices.Equal(got, want) {
		t.Errorf("%s: events %q, want %q", what, got, want)
	}
}

func TestSinkTells(t *testing.T) {
	run(t, func(r *rig) {
		r.happens("ns", "a", pod.ReasonStarted, "begins")
		r.want(t, "one", "begins x1")
		r.happens("ns", "a", pod.ReasonStarted, "begins")
		r.want(t, "again", "begins x2")
		r.api.set(func() { clear(r.api.has) })
		r.happens("ns", "a", pod.ReasonStarted, "begins")
		r.want(t, "after the server has forgotten it", "begins x3")
		r.api.set(func() { r.api.late = true })
		r.happens("ns", "a", pod.ReasonPulled, "pulled")
		time.Sleep(time.Minute)
		r.want(t, "after a lost answer", "begins x3", "pulled x1")
		if len(r.api.made) != 3 {
			t.Errorf("made %q", r.api.made)
		}
	})
}

// TestSinkWaitsForTheServer: what happens while it is away is told once it is back, in its newest state.
func TestSinkWaitsForTheServer(t *testing.T) {
	run(t, func(r *rig) {
		r.api.set(func() {
			r.api.fail = func(string, string) error { return errors.NewServiceUnavailable("away") }
		})
		for range 5 {
			r.happens("ns", "a", pod.ReasonStarted, "begins")
		}
		r.happens("ns", "a", pod.ReasonKilling, "ends")
		time.Sleep(3 * time.Second)
		r.want(t, "away")
		r.api.set(func() { r.api.fail = nil })
		r.reached.Wake()
		r.want(t, "back", "begins x5", "ends x1")
		if r.lost.told != 2 || len(r.lost.lost) > 0 {
			t.Errorf("told %d, lost %v", r.lost.told, r.lost.lost)
		}
	})
}

// TestSinkDropsWhatIsRefused: a namespace that is going takes no events, and holds up no others.
func TestSinkDropsWhatIsRefused(t *testing.T) {
	for name, err := range map[string]error{
		"going":   errors.NewForbidden(resource, "e", fmt.Errorf("namespace is being terminated")),
		"gone":    errors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "going"),
		"invalid": errors.NewBadRequest("no"),
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(r *rig) {
				r.api.fail = func(_, namespace string) error {
					if namespace == "going" {
						return err
					}
					return nil
				}
				r.happens("going", "a", pod.ReasonKilling, "ends")
				r.happens("ns", "b", pod.ReasonStarted, "begins")
				r.want(t, "one of two", "begins x1")
				if r.lost.lost[LostRefused] != 1 || r.api.calls != 2 {
					t.Errorf("lost %v, calls %d", r.lost.lost, r.api.calls)
				}
			})
		})
	}
}

// TestSinkGivesUp: one that always fails is given up in the end.
func TestSinkGivesUp(t *testing.T) {
	run(t, func(r *rig) {
		r.api.fail = func(_, namespace string) error {
			if namespace == "bad" {
				return errors.NewGenericServerResponse(http.StatusInternalServerError, "post", resource, "e", "webhook", 0, true)
			}
			return nil
		}
		r.happens("bad", "a", pod.ReasonStarted, "begins")
		r.happens("ns", "b", pod.ReasonStarted, "begins")
		time.Sleep(10 * time.Minute)
		r.want(t, "after a while", "begins x1")
		if r.lost.lost[LostFailed] != 1 || r.api.calls != maxTries+1 {
			t.Errorf("lost %v, calls %d", r.lost.lost, r.api.calls)
		}
	})
}

// TestSinkTellsOthersMeanwhile: one that fails again and again delays no other, whenever that comes.
func TestSinkTellsOthersMeanwhile(t *testing.T) {
	run(t, func(r *rig) {
		r.api.fail = func(_, namespace string) error {
			if namespace == "bad" {
				return errors.NewInternalError(fmt.Errorf("webhook"))
			}
			return nil
		}
		var want []string
		for n := range 20 {
			r.happens("bad", fmt.Sprint("a", n%2), pod.ReasonStarted, fmt.Sprint("begins ", n%2))
			r.happens("ns", fmt.Sprint("b", n), pod.ReasonStarted, fmt.Sprintf("begins %02d", n))
			want = append(want, fmt.Sprintf("begins %02d x1", n))
			r.want(t, fmt.Sprint("at once: ", n), want...) // no time passes
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if calls := r.api.calls - len(want); calls > 2*maxTries {
			t.Errorf("%d calls for two that fail", calls)
		}
	})
}

// TestSinkSparesAServerThatFails: where one after the other fails, the rest waits.
func TestSinkSparesAServerThatFails(t *testing.T) {
	run(t, func(r *rig) {
		r.api.fail = func(string, string) error { return errors.NewTooManyRequests("slow down", 0) }
		for n := range 100 {
			r.happens("ns", fmt.Sprint("p", n), pod.ReasonStarted, "begins")
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if r.api.calls > 30 {
			t.Errorf("%d calls in 5 s of a server that asked for less", r.api.calls)
		}
		r.api.set(func() { r.api.fail = nil })
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if len(r.api.made) != 100 || len(r.lost.lost) > 0 {
			t.Errorf("told %d, lost %v", len(r.api.made), r.lost.lost)
		}
	})
}

// TestSinkUnderOverload: what is worth least is lost first, and counted; who reports waits for nobody.
func TestSinkUnderOverload(t *testing.T) {
	run(t, func(r *rig) {
		r.api.slow = 200 * time.Millisecond // 5 a second
		const pods = 1000
		began := time.Now()
		for i := range pods {
			name := fmt.Sprint("pod", i)
			r.happens("ns", name, pod.ReasonStarted, "begins")
			if i%10 == 0 {
				r.happens("ns", name, pod.ReasonUnhealthy, "sick")
				r.happens("ns", name, pod.ReasonKilling, "ends")
			}
			synctest.Wait() // the sink reads while nothing is sent
		}
		if took := time.Since(began); took > 0 {
			t.Errorf("reporting took %s", took)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		count := map[string]int{}
		for _, message := range r.api.made {
			count[message]++
		}
		lost := 2*pods/10 - 1 // one was under way
		if count["ends"] != pods/10 || count["sick"] != pods/10 || r.lost.lost[LostOverload] != lost || count["begins"] != pods-lost {
			t.Errorf("told %v, lost %v", count, r.lost.lost)
		}
	})
}

func TestRank(t *testing.T) {
	entry := func(kind, event string, reason pod.Reason, count int) *events.Entry {
		return &events.Entry{Type: event, Reason: reason, Count: count, Object: v1.ObjectReference{Kind: kind}}
	}
	order := []*events.Entry{
		entry("Pod", v1.EventTypeNormal, pod.ReasonBackOff, 2),
		entry("Pod", v1.EventTypeNormal, pod.ReasonStarted, 1),
		entry("Node", v1.EventTypeWarning, pod.ReasonImageGCFailed, 7),
		entry("Pod", v1.EventTypeNormal, pod.ReasonKilling, 3),
	}
	for i, e := range order {
		if got := rankOf(e); got != rank(i) {
			t.Errorf("%s %s: rank %d, want %d", e.Type, e.Reason, got, i)
		}
	}
	q := newQueue(len(order))
	for i, e := range order {
		e.ID, e.Seq = uint64(i+1), uint64(i+1)
		q.put(item{Entry: *e})
	}
	if !q.put(item{Entry: events.Entry{ID: 9, Seq: 9, Type: v1.EventTypeNormal, Count: 1}}) || len(q.items) != len(order) {
		t.Error("nothing was lost")
	}
	if _, there := q.items[1]; there {
		t.Error("a repeated Normal event is kept before a new one")
	}
}
