package agent_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// office has what its assigners have recorded, and what they were asked.
type office struct {
	mu    sync.Mutex
	calls []string
	// taken are the pods that have something, by assigner.
	taken map[string]map[types.UID]string
	// answers are why an assigner gives a pod nothing, by both names.
	answers map[string]*pod.Failure
}

func (o *office) call(format string, args ...any) {
	o.calls = append(o.calls, fmt.Sprintf(format, args...))
}

// asked returns the calls since the last time.
func (o *office) asked() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	calls := o.calls
	o.calls = nil
	return calls
}

// holders are the pods that have something of an assigner.
func (o *office) holders(assigner string) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Sorted(maps.Values(o.taken[assigner]))
}

// furniture is an assigner: each container of a pod gets a piece of its own.
type furniture struct {
	*office
	name string
	// has is what this agent's instance knows of.
	has map[types.UID]string
}

func (f *furniture) Restore() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.call("restore %s", f.name)
	f.has = maps.Clone(f.taken[f.name])
	return nil
}

func (f *furniture) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (f *furniture) Assign(_ context.Context, p *v1.Pod) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.has[p.UID] != "" {
		return nil
	}
	name := strings.TrimSuffix(p.Name, "-n")
	f.call("%s for %s", f.name, name)
	if answer := f.answers[f.name+" for "+name]; answer != nil {
		next := *answer
		if !next.Rejected {
			next.NotBefore = time.Now().Add(50 * time.Millisecond)
		}
		return &next
	}
	if f.has == nil {
		f.has, f.taken[f.name] = map[types.UID]string{}, map[types.UID]string{}
	}
	f.has[p.UID], f.taken[f.name][p.UID] = name, name
	return nil
}

func (f *furniture) Awaits(*v1.Pod) *pod.Failure { return nil }

func (f *furniture) Release(uid types.UID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.has[uid] != "" {
		f.call("%s of %s back", f.name, f.has[uid])
		delete(f.has, uid)
		delete(f.taken[f.name], uid)
	}
}

func (f *furniture) Unallocatable() map[v1.ResourceName]int64 { return nil }

func (f *furniture) Provide(_ context.Context, p *v1.Pod, c *v1.Container, to *translate.Devices) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.has[p.UID] == "" {
		return fmt.Errorf("container %s has no %s", c.Name, f.name)
	}
	if to.Annotations == nil {
		to.Annotations = map[string]string{}
	}
	to.Annotations["example.com/"+f.name] = c.Name
	return nil
}

func (f *furniture) PreStart(context.Context, *v1.Pod, *v1.Container) error { return nil }

func (f *furniture) Starting(context.Context, *v1.Pod, *v1.Container, string) (started func(), err error) {
	return func() {}, nil
}

func (f *furniture) Unthrottled(*v1.Pod) bool { return false }

func (f *furniture) Fixes(*v1.Pod, *pod.Allocation, *pod.Allocation) (why, detail string) {
	return "", ""
}

func (f *furniture) Health(uid types.UID) map[string][]v1.ResourceStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.has[uid] == "" {
		return nil
	}
	return map[string][]v1.ResourceStatus{"main": {{Name: v1.ResourceName("example.com/" + f.name),
		Resources: []v1.ResourceHealth{{ResourceID: "1", Health: v1.ResourceHealthStatusHealthy}}}}}
}

// TestMoreAssigners: a member of the list is all that something needs which containers have for themselves.
func TestMoreAssigners(t *testing.T) {
	o := &office{taken: map[string]map[types.UID]string{}, answers: map[string]*pod.Failure{
		"chair for guest": {Reason: "OutOfchairs", Wait: pod.WaitForRoom, Message: "all chairs are taken"},
		"chair for cat":   {Reason: "Fur", Rejected: true, Message: "not on the chairs"},
	}}
	r := newRig(t)
	r.between.Ledger = func(c *allocation.Config) {
		c.Assigners = append(c.Assigners, &furniture{office: o, name: "desk"}, &furniture{office: o, name: "chair"})
	}
	asked := func(what string, want ...string) {
		t.Helper()
		if got := o.asked(); !slices.Equal(got, want) {
			t.Errorf("%s: asked were %q, want %q", what, got, want)
		}
	}
	const spec = "  containers: [{name: main, image: IMAGE}]"
	r.want("clerk", spec)
	r.up()
	r.await("it runs", r.running("clerk/main"))
	asked("a new pod", "restore desk", "restore chair", "desk for clerk", "chair for clerk")
	if given := r.newest("clerk/main").Annotations; given["example.com/desk"] != "main" || given["example.com/chair"] != "main" {
		t.Errorf("the container was created with %v", given)
	}
	r.awaitPod("clerk", func(v local.PodView) string {
		var names []v1.ResourceName
		for _, c := range v.Pod.Status.ContainerStatuses {
			for _, s := range c.AllocatedResourcesStatus {
				names = append(names, s.Name)
			}
		}
		if !slices.Equal(names, []v1.ResourceName{"example.com/desk", "example.com/chair"}) {
			return fmt.Sprintf("its status has the health of %v", names)
		}
		return ""
	})

	r.want("guest", spec)
	r.waitsFor("guest", "all chairs are taken")
	if got := o.asked(); len(got) < 3 || !slices.Equal(got[:3], []string{"desk for guest", "chair for guest", "desk of guest back"}) {
		t.Errorf("a pod that waits: asked were %q", got)
	}
	o.mu.Lock()
	delete(o.answers, "chair for guest")
	o.mu.Unlock()
	r.await("it has waited", r.running("clerk/main", "guest/main"))
	o.asked()

	r.want("cat", spec)
	r.awaitPod("cat", func(v local.PodView) string {
		if s := v.Pod.Status; s.Phase != v1.PodFailed || s.Reason != "Fur" || s.Message != "Pod was rejected: not on the chairs" {
			return fmt.Sprintf("it is %s: %s, %s", s.Phase, s.Reason, s.Message)
		}
		return ""
	})
	asked("a pod that is rejected", "desk for cat", "chair for cat", "desk of cat back")

	r.restart()
	r.unwant("clerk")
	r.await("it is gone", r.running("guest/main"))
	r.await("what it had is free", func() string {
		if desks, chairs := o.holders("desk"), o.holders("chair"); len(desks) != 1 || len(chairs) != 1 {
			return fmt.Sprintf("desks are with %v, chairs with %v", desks, chairs)
		}
		return ""
	})
	asked("after a restart", "restore desk", "restore chair", "chair of clerk back", "desk of clerk back")
}
