package lifecycle_test

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
)

// quiesce lets everything succeed and finds the pod at rest: stopped and gone, or
// finished, or up and ready.
func quiesce(rt dice, s *sim) {
	clear(s.probes)
	what := "from now on all goes well"
	for range 2000 {
		s.play(rt, what)
		news := false
		for _, p := range s.last.Probes {
			if _, ok := s.probes[p]; !ok {
				s.probes[p], news = pod.ProbeResult{Probe: p, OK: true, At: s.now}, true
			}
		}
		switch {
		case news:
			what = "probes succeed"
		case len(s.inFlight) > 0:
			a := s.inFlight[0]
			s.inFlight = s.inFlight[1:]
			s.succeed(a)
			what = "ok " + string(a.Kind)
		case s.initRunning() != nil:
			s.exit(s.initRunning(), 0)
			what = "init container succeeds"
		case !s.last.Wake.IsZero() && s.pod.Spec.ActiveDeadlineSeconds == nil:
			s.now, what = s.last.Wake, "wake"
		case !s.last.Wake.IsZero() && s.unrest() != "":
			s.now, what = s.last.Wake, "wake"
		default:
			if why := s.unrest(); why != "" {
				rt.Fatalf("at rest, but %s: %v, because %v", why, s.last.Status.Phase, s.last.Waits)
			}
			if s.stop == nil || !s.object {
				return
			}
			s.objectGone()
			what = "its object goes"
		}
	}
	rt.Fatalf("never comes to rest: %v, because %v", s.last.Status, s.last.Waits)
}

// unrest says what keeps the pod from being where it should; empty if it is there.
func (s *sim) unrest() string {
	if s.stop != nil && s.object {
		if !s.last.Gone || s.mounted {
			return "its end isn't told, or it has volumes"
		}
		return ""
	}
	if s.stop != nil {
		if !s.last.Done || !s.obs.Empty() {
			return "it isn't gone"
		}
		return ""
	}
	seen := map[string]int{}
	for i := range s.obs.Containers {
		c := &s.obs.Containers[i]
		if abortedStart(c) {
			continue
		}
		seen[c.Name]++
		if slices.Contains(s.excess, c.ID) && seen[c.Name] > 1 || s.node.ContainerGC == nil && seen[c.Name] > 2 {
			return c.ID + " isn't removed"
		}
	}
	st := s.last.Status
	if s.laws.rejected && st.Phase != v1.PodFailed {
		return "it was rejected"
	}
	if st.Phase == v1.PodSucceeded || st.Phase == v1.PodFailed {
		for i := range s.obs.Containers {
			if c := &s.obs.Containers[i]; c.State == pod.ContainerRunning || s.lost[c.ID] {
				return c.ID + " runs"
			}
		}
		if s.mounted && len(s.pod.Spec.Volumes) > 0 {
			return "it has volumes"
		}
		return ""
	}
	if len(s.obs.Sandboxes) == 0 || s.obs.Sandboxes[0].State != pod.SandboxReady {
		return "it has no sandbox"
	}
	for _, list := range [...][]v1.ContainerStatus{st.InitContainerStatuses, st.ContainerStatuses} {
		for i := range list {
			if why := s.unrestOf(&list[i]); why != "" {
				return list[i].Name + " " + why
			}
		}
	}
	if !allocated.SameList(s.overhead, s.pod.Spec.Overhead) {
		return "it isn't prepared for its overhead"
	}
	if s.allocation.Generation != s.pod.Generation || !allocated.Equal(s.allowed, s.allocation) {
		return "it hasn't got the resources that it asks for"
	}
	return ""
}

// unrestOf says what keeps a container from being where it should.
func (s *sim) unrestOf(st *v1.ContainerStatus) string {
	c, spec := s.obs.Newest(st.Name), pod.ContainerNamed(s.pod, st.Name)
	switch {
	case isInit(s.pod, st.Name): // the main containers are looked at
	case c == nil:
		return "was never made"
	case c.State != pod.ContainerRunning:
		again, _ := s.laws.after(s.pod, c)
		if !c.Ended() || again || s.laws.of(c.ID).renewed && c.Image != spec.Image {
			return fmt.Sprintf("has ended with code %d", exitCode(c))
		}
	case !st.Ready:
		return "isn't ready"
	case c.Image != spec.Image:
		return "has another image than it should"
	case !allocated.Same(s.resources[c.ID], spec.Resources):
		return "has other resources than it should"
	}
	return ""
}

func (s *sim) initRunning() *pod.Container {
	for i := range s.pod.Spec.InitContainers {
		c := &s.pod.Spec.InitContainers[i]
		if inst := s.obs.Newest(c.Name); !pod.IsSidecar(c) && inst != nil && inst.State == pod.ContainerRunning {
			return s.byID(inst.ID)
		}
	}
	return nil
}

// TestFewRemovalsAtOnce: a pod with very many ended instances has some of them removed at a time, and in the end all.
func TestFewRemovalsAtOnce(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "u1"}}
	p.Spec.Containers = []v1.Container{{Name: "web", Image: "example.com/web:1"}}
	s := newSim(p)
	if err := s.bringUp(); err != nil {
		t.Fatal(err)
	}
	s.obs.Containers[0].Attempt = 100
	for attempt := 99; attempt > 50; attempt-- {
		c := s.obs.Containers[0]
		c.ID, c.Attempt, c.State, c.FinishedAt = fmt.Sprint("old", attempt), attempt, pod.ContainerExited, epoch
		s.obs.Containers = append(s.obs.Containers, c)
	}
	in := lifecycle.Input{Now: s.now, Pod: s.pod, Observed: &s.obs, Memory: s.mem, Node: s.node, Allocation: s.allocation}
	for turn := 0; len(s.obs.Containers) > 2; turn++ {
		d := lifecycle.Decide(in)
		in.Memory, in.Results = d.Memory, nil
		in.InFlight = append(in.InFlight, d.Actions...)
		if n := len(in.InFlight); n > 10 || n == 0 {
			t.Fatalf("turn %d: %d removals at once", turn, n)
		}
		a := in.InFlight[0]
		if a.Kind != pod.RemoveContainer {
			t.Fatalf("turn %d: %+v", turn, a)
		}
		in.InFlight = slices.Delete(slices.Clone(in.InFlight), 0, 1)
		in.Results = []pod.Result{{Action: a, At: s.now}}
		s.obs.Containers = slices.DeleteFunc(slices.Clone(s.obs.Containers), func(c pod.Container) bool { return c.ID == a.ID })
	}
	if left := s.obs.Containers; left[0].Attempt != 100 || left[1].Attempt != 99 {
		t.Errorf("%+v", left)
	}
}
