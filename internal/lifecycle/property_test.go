package lifecycle

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// TestLaws drives the core with random pods, failures, exits, restarts of agent
// and machine, and stops, and looks after each decision for what must never be.
// In the end everything is allowed to succeed, and the pod must come to rest.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newSim(drawPod(rt))
		var terminal v1.PodPhase
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			step := drawStep(rt, s)
			s.decide()
			if len(s.problems) > 0 {
				rt.Fatalf("after %s: %v", step, s.problems)
			}
			checkOrder(rt, s)
			if s.stop != nil && (step == "agent-restarts" || step == "reboot") {
				terminal = "" // nobody is left to remember a pod that is half removed
			}
			if ph := s.last.Status.Phase; terminal != "" && ph != terminal {
				rt.Fatalf("after %s: phase %s follows %s, which is final", step, ph, terminal)
			} else if s.mem.Terminal != "" {
				terminal = ph
			}
		}
		settle(rt, s)
	})
}

func drawPod(rt *rapid.T) *v1.Pod {
	grace := int64(rapid.IntRange(0, 30).Draw(rt, "grace"))
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default", UID: "u"}}
	p.Spec.TerminationGracePeriodSeconds = &grace
	p.Spec.RestartPolicy = rapid.SampledFrom([]v1.RestartPolicy{v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever}).Draw(rt, "policy")
	always := v1.ContainerRestartPolicyAlways
	for i := range rapid.IntRange(0, 3).Draw(rt, "inits") {
		c := v1.Container{Name: fmt.Sprintf("i%d", i), Image: "x"}
		if rapid.Bool().Draw(rt, "sidecar") {
			c.RestartPolicy = &always
		}
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	for i := range rapid.IntRange(1, 3).Draw(rt, "mains") {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprintf("m%d", i), Image: "x"})
	}
	return p
}

func drawStep(rt *rapid.T, s *sim) string {
	switch kind := rapid.IntRange(0, 11).Draw(rt, "step"); {
	case kind <= 4 && len(s.inFlight) > 0:
		i := rapid.IntRange(0, len(s.inFlight)-1).Draw(rt, "which")
		a := s.inFlight[i]
		s.inFlight = append(s.inFlight[:i:i], s.inFlight[i+1:]...)
		s.succeed(a)
		return "ok " + describeAction(a)
	case kind == 5 && len(s.inFlight) > 0:
		a := s.inFlight[0]
		s.inFlight = s.inFlight[1:]
		if rapid.Bool().Draw(rt, "effect") {
			s.lose(a)
			return "lose " + describeAction(a)
		}
		s.fail(a, "Broken", "by chance")
		return "fail " + describeAction(a)
	case kind == 6 && len(s.obs.Containers) > 0:
		c := &s.obs.Containers[rapid.IntRange(0, len(s.obs.Containers)-1).Draw(rt, "victim")]
		if c.State == pod.ContainerRunning {
			s.exit(c, int32(rapid.IntRange(0, 2).Draw(rt, "code")))
		}
		return "exit " + c.Name
	case kind == 7:
		// What was under way may or may not have had its effect.
		for _, a := range s.inFlight {
			if rapid.Bool().Draw(rt, "effect") {
				s.succeed(a)
			}
		}
		s.restartAgent()
		return "agent-restarts"
	case kind == 8 && len(s.obs.Sandboxes) > 0:
		if rapid.Bool().Draw(rt, "reboot") {
			for _, b := range s.obs.Sandboxes {
				s.endSandbox(b.ID, 255)
			}
			s.restartAgent()
			return "reboot"
		}
		s.obs.Sandboxes[0].State = pod.SandboxNotReady
		return "sandbox-dies"
	case kind == 10 && len(s.inFlight) > 0 && s.cancelled[s.inFlight[0].Target()]:
		a := s.inFlight[0]
		s.inFlight = s.inFlight[1:]
		if rapid.Bool().Draw(rt, "effect") {
			s.succeed(a)
			s.results = s.results[:len(s.results)-1]
		}
		s.results = append(s.results, pod.Result{Action: a, At: s.now, Cancelled: true})
		return "cancel " + describeAction(a)
	case kind == 9 && s.stop == nil && rapid.IntRange(0, 9).Draw(rt, "stopnow") == 0:
		s.stop = &Stop{At: s.now, Why: "by chance"}
		return "stop"
	default:
		s.now = s.now.Add(time.Duration(rapid.IntRange(0, 400).Draw(rt, "seconds")) * time.Second)
		return "time passes"
	}
}

// checkOrder: a main container is only begun once the init containers succeeded,
// grace only shrinks, and a terminal phase is final.
func checkOrder(rt *rapid.T, s *sim) {
	for _, a := range s.last.Actions {
		if a.Kind == pod.StopContainer && s.stop != nil {
			if whole := time.Duration(*s.pod.Spec.TerminationGracePeriodSeconds) * time.Second; a.Grace > whole-s.now.Sub(s.stop.At) && a.Grace > 0 {
				rt.Fatalf("grace grew: %s", describeAction(a))
			}
		}
		if a.Kind != pod.CreateContainer || s.stop != nil || a.Container[0] != 'm' {
			continue
		}
		for i := range s.pod.Spec.InitContainers {
			c := &s.pod.Spec.InitContainers[i]
			if roleOf(c) != roleInit {
				continue
			}
			inst := s.obs.Newest(c.Name)
			past := false
			for _, m := range s.obs.Containers {
				past = past || m.Name[0] == 'm' && m.SandboxID == a.SandboxID
			}
			if !past && (inst == nil || !inst.Ended() || inst.ExitCode != 0 || inst.SandboxID != a.SandboxID) {
				rt.Fatalf("%s before init container %s succeeded", describeAction(a), c.Name)
			}
		}
	}
}

// settle lets everything succeed and finds the pod at rest: stopped and gone, or
// finished, or up.
func settle(rt *rapid.T, s *sim) {
	for range 500 {
		s.decide()
		if len(s.problems) > 0 {
			rt.Fatal(s.problems)
		}
		switch {
		case len(s.inFlight) > 0:
			a := s.inFlight[0]
			s.inFlight = s.inFlight[1:]
			s.succeed(a)
		case !s.last.Wake.IsZero():
			s.now = s.last.Wake
		case s.initRunning() != nil:
			s.exit(s.initRunning(), 0)
		default:
			if s.stop != nil && (!s.last.Done || !s.obs.Empty()) {
				rt.Fatalf("a stopped pod isn't gone: %s", s.describe(s.last))
			}
			if ph := s.last.Status.Phase; s.stop == nil && ph == v1.PodPending {
				rt.Fatalf("at rest while pending: %s", s.describe(s.last))
			}
			return
		}
	}
	rt.Fatalf("never comes to rest: %s", s.describe(s.last))
}

func (s *sim) initRunning() *pod.Container {
	for i := range s.pod.Spec.InitContainers {
		c := &s.pod.Spec.InitContainers[i]
		if inst := s.obs.Newest(c.Name); roleOf(c) == roleInit && inst != nil && inst.State == pod.ContainerRunning {
			return s.byID(inst.ID)
		}
	}
	return nil
}
