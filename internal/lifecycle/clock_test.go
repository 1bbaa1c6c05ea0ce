package lifecycle_test

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
)

// TestStoredTimesAreAnchored: a decision between a step of the clock and its report has to get deadlines right, too.
func TestStoredTimesAreAnchored(t *testing.T) {
	s := newSim(&v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "web", Image: "example.com/web:1"}}}})
	s.node.ContainerGC = &lifecycle.ContainerGC{MinAge: time.Hour}
	for _, command := range []string{"up", "exit web 1", "up"} {
		if err := s.apply(command); err != nil {
			t.Fatal(err)
		}
		s.decide()
	}
	s.now = time.Now()
	s.restartAgent()
	s.decide()
	times := map[string]time.Time{"Started": s.mem.Started, "Ended": s.mem.Ended["web2"]}
	for name, got := range times {
		if got.IsZero() || got == got.Round(0) {
			t.Errorf("%s is %v, without a monotonic reading", name, got)
		}
	}
}

// TestStopOutlivesStepsOfTheClock: a stop under way isn't given up, which would send the signal again, because times
// were rounded when the clock was set.
func TestStopOutlivesStepsOfTheClock(t *testing.T) {
	for _, odd := range []time.Duration{1, 400_001, 499_999, 500_001, 999_999} {
		s := newSim(&v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "web", Image: "example.com/web:1"}}}})
		for _, command := range []string{"up", "stop 600s"} {
			if err := s.apply(command); err != nil {
				t.Fatal(err)
			}
			s.decide()
		}
		for range 5 {
			s.now = s.now.Add(time.Second + odd)
			if err := s.apply("clock-steps 1h"); err != nil {
				t.Fatal(err)
			}
			if d := s.decide(); len(d.Cancel) > 0 {
				t.Errorf("%d ns after the stop, the step of the clock cancels %v", odd, d.Cancel)
			}
		}
	}
}
