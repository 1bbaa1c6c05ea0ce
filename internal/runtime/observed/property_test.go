package observed

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// TestConverges lets the runtime change at random while events are lost, doubled
// and delivered in any order, before, during and after lists. No instance may
// ever go backward, nothing that was told to be gone may come back, and after a
// last list the cache must be what the runtime has, whatever comes in later.
func TestConverges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &sim{t: t, w: newWorld(), ranks: map[string]int{}, dead: map[string]bool{}}
		s.x = watch(s.w)
		steps := rapid.IntRange(1, 60).Draw(t, "steps")
		for range steps {
			s.step()
			s.check()
		}
		s.w.onList = nil
		s.list()
		s.catchUp()
		s.equal("after the last list")
		for range rapid.IntRange(0, 10).Draw(t, "late") {
			s.deliver()
		}
		s.catchUp()
		s.equal("after late events")
	})
}

type sim struct {
	t       *rapid.T
	w       *world
	x       *watcher
	next    int
	pending []*runtimeapi.ContainerEventResponse
	// ranks is how far each instance was seen to be; dead is what was told to be gone.
	ranks map[string]int
	dead  map[string]bool
}

func (s *sim) step() {
	// Time must pass between what happens for its order to be told.
	time.Sleep(time.Microsecond)
	switch rapid.IntRange(0, 9).Draw(s.t, "step") {
	case 0, 1, 2, 3:
		s.change()
	case 4, 5, 6, 7:
		s.deliver()
	case 8:
		s.w.onList = func() {
			s.w.onList = nil
			for range rapid.IntRange(0, 3).Draw(s.t, "meanwhile") {
				s.change()
				s.deliver()
			}
		}
		s.list()
	case 9:
		s.catchUp()
	}
}

// change makes something happen in the runtime, and its event.
func (s *sim) change() {
	s.next++
	uid := fmt.Sprintf("pod%d", rapid.IntRange(0, 1).Draw(s.t, "pod"))
	id := fmt.Sprintf("id%d", s.next)
	var sandboxes, containers []string
	for k, sb := range s.w.sandboxes {
		if sb.Labels["io.kubernetes.pod.uid"] == uid {
			sandboxes = append(sandboxes, k)
		}
	}
	for k := range s.w.containers {
		containers = append(containers, k)
	}
	slices.Sort(sandboxes)
	slices.Sort(containers)
	kind := rapid.IntRange(0, 6).Draw(s.t, "change")
	if len(sandboxes) == 0 || kind == 0 {
		e := s.w.addSandbox(uid, id, uint32(s.next))
		s.queue(e)
		if rapid.Bool().Draw(s.t, "fact") {
			_, sb, _ := translate.SandboxStatus(e.PodSandboxStatus)
			sb.IPs = nil
			s.x.SandboxCreated(types.UID(uid), "name-"+uid, "ns", sb)
		}
		return
	}
	sandbox := rapid.SampledFrom(sandboxes).Draw(s.t, "sandbox")
	if len(containers) == 0 || kind == 1 {
		s.queue(s.w.addContainer(sandbox, id, fmt.Sprintf("name%d", s.next%3), uint32(s.next)))
		if rapid.Bool().Draw(s.t, "fact") {
			s.x.ContainerCreated(types.UID(uid), "name-"+uid, "ns", pod.Container{ID: id, Name: fmt.Sprintf("name%d", s.next%3),
				SandboxID: sandbox, Attempt: s.next, State: pod.ContainerCreated})
		}
		return
	}
	c := rapid.SampledFrom(containers).Draw(s.t, "container")
	state := s.w.containers[c].status.State
	switch {
	case kind == 2 && state == runtimeapi.ContainerState_CONTAINER_CREATED:
		s.queue(s.w.start(c))
	case kind == 3 && state == runtimeapi.ContainerState_CONTAINER_RUNNING:
		s.queue(s.w.exit(c, int32(s.next)))
	case kind == 4:
		s.queue(s.w.removeContainer(c))
		if rapid.Bool().Draw(s.t, "fact") {
			s.dead[c] = true
			s.x.ContainerRemoved(c)
		}
	case kind == 5:
		s.queue(s.w.stopSandbox(sandbox))
	case kind == 6:
		s.queue(s.w.removeSandbox(sandbox)...)
	}
}

func (s *sim) queue(events ...*runtimeapi.ContainerEventResponse) {
	s.pending = append(s.pending, events...)
}

// deliver hands over, or loses, any event that was ever sent.
func (s *sim) deliver() {
	if len(s.pending) == 0 {
		return
	}
	i := rapid.IntRange(0, len(s.pending)-1).Draw(s.t, "event")
	e := s.pending[i]
	switch rapid.IntRange(0, 3).Draw(s.t, "how") {
	case 0: // lost
		s.pending = slices.Delete(s.pending, i, i+1)
		return
	case 1: // once more later
	default:
		s.pending = slices.Delete(s.pending, i, i+1)
	}
	if e.ContainerEventType == runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT {
		s.dead[e.ContainerId] = true
	}
	s.x.handle(e)
}

func (s *sim) list() {
	if err := s.x.Relist(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// catchUp does what Run's goroutines would.
func (s *sim) catchUp() {
	for {
		select {
		case <-s.x.kick:
			s.list()
			continue
		default:
		}
		uid, ok := s.x.refresh.next()
		if !ok {
			return
		}
		s.x.refreshPod(s.t.Context(), uid)
		s.x.refresh.done(uid)
	}
}

func (s *sim) check() {
	for _, uid := range s.x.UIDs() {
		o := s.x.Get(uid)
		if o.Empty() {
			s.t.Fatalf("an empty pod is kept: %+v", o)
		}
		for _, sb := range o.Sandboxes {
			rank := 0
			if sb.State == pod.SandboxNotReady {
				rank = 1
			}
			s.forward(sb.ID, rank)
		}
		for _, c := range o.Containers {
			s.forward(c.ID, slices.Index([]pod.ContainerState{pod.ContainerCreated, pod.ContainerRunning, pod.ContainerExited}, c.State))
		}
		for i := 1; i < len(o.Sandboxes); i++ {
			if o.Sandboxes[i-1].Attempt < o.Sandboxes[i].Attempt {
				s.t.Fatalf("sandboxes out of order: %+v", o.Sandboxes)
			}
		}
		seen := map[string]bool{}
		for i, c := range o.Containers {
			if i > 0 && o.Containers[i-1].Name == c.Name {
				if o.Containers[i-1].Attempt < c.Attempt {
					s.t.Fatalf("instances out of order: %+v", o.Containers)
				}
			} else if seen[c.Name] {
				s.t.Fatalf("instances of a name aren't together: %+v", o.Containers)
			}
			seen[c.Name] = true
		}
	}
}

func (s *sim) forward(id string, rank int) {
	if s.dead[id] {
		s.t.Fatalf("%s came back from the dead", id)
	}
	if rank < s.ranks[id] {
		s.t.Fatalf("%s went backward", id)
	}
	s.ranks[id] = rank
}

// equal compares the cache with the runtime. How older dead instances ended isn't known if no event of it came.
func (s *sim) equal(when string) {
	have := map[string]string{}
	newest := s.newest()
	details := func(c pod.Container) string {
		if c.Ended() && !newest[c.ID] {
			return "ended"
		}
		return fmt.Sprintf("%d %v", c.ExitCode, c.StartedAt.UnixNano())
	}
	for _, uid := range s.x.UIDs() {
		o := s.x.Get(uid)
		for _, sb := range o.Sandboxes {
			have[sb.ID] = fmt.Sprintf("%s %s %d %v", uid, sb.State, sb.Attempt, sb.IPs)
		}
		for _, c := range o.Containers {
			have[c.ID] = fmt.Sprintf("%s %s %s %d %s %s", uid, c.SandboxID, c.Name, c.Attempt, c.State, details(c))
		}
	}
	want := map[string]string{}
	for id, st := range s.w.sandboxes {
		who, sb, _ := translate.SandboxStatus(st)
		if sb.State == pod.SandboxNotReady {
			sb.IPs = nil
		}
		want[id] = fmt.Sprintf("%s %s %d %v", who.UID, sb.State, sb.Attempt, sb.IPs)
	}
	for id, k := range s.w.containers {
		who, c, _ := translate.ContainerStatus(k.status, k.sandbox, "")
		want[id] = fmt.Sprintf("%s %s %s %d %s %s", who.UID, c.SandboxID, c.Name, c.Attempt, c.State, details(c))
	}
	if fmt.Sprint(have) != fmt.Sprint(want) {
		s.t.Fatalf("%s\nhave %v\nwant %v", when, have, want)
	}
}

// newest are the IDs of the instances whose details a list reads.
func (s *sim) newest() map[string]bool {
	instances := map[slot][]pod.Container{}
	for _, k := range s.w.containers {
		who, c, _ := translate.ContainerStatus(k.status, k.sandbox, "")
		of := slot{who.UID, c.Name}
		instances[of] = append(instances[of], c)
	}
	out := map[string]bool{}
	for _, all := range instances {
		slices.SortFunc(all, func(a, b pod.Container) int { return b.Attempt - a.Attempt })
		for _, c := range all[:min(detailed, len(all))] {
			out[c.ID] = true
		}
	}
	return out
}
