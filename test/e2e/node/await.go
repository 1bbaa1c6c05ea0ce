package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
)

// retryEvery is how often things are asked again that nobody tells changes of.
const retryEvery = 25 * time.Millisecond

// Condition reports what is missing in a snapshot, or nil if it is as it should be.
type Condition func(local.Snapshot) error

// Await waits until the agent's own account of itself meets all conditions, and
// returns that account. It goes by what the agent announces, not by looking again
// and again.
func (n *Node) Await(what string, conditions ...Condition) local.Snapshot {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	missing := errors.New("the agent reported nothing")
	for ctx.Err() == nil {
		n.mustRun()
		for s, err := range n.client.Watch(ctx) {
			if err != nil {
				// Not up yet, or going down.
				if ctx.Err() == nil {
					missing = err
				}
				break
			}
			if missing = met(s, conditions); missing == nil {
				return s
			}
		}
		pause(ctx)
	}
	n.t.Fatalf("%s: not within %s: %v", what, Deadline, missing)
	return local.Snapshot{}
}

func met(s local.Snapshot, conditions []Condition) error {
	for _, c := range conditions {
		if err := c(s); err != nil {
			return err
		}
	}
	return nil
}

// Eventually waits until look returns nil. It is for what can only be looked at
// from outside: the host, the runtime, a web page.
func (n *Node) Eventually(what string, look func() error) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Deadline)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		if err = look(); err == nil {
			return
		}
		pause(ctx)
	}
	n.t.Fatalf("%s: not within %s: %v", what, Deadline, err)
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(retryEvery):
	}
}

// Find returns the static pod that a manifest calls name, or nil.
func Find(s local.Snapshot, name string) *local.PodView {
	for i := range s.Pods {
		if s.Pods[i].Pod.Name == name+"-"+Name {
			return &s.Pods[i]
		}
	}
	return nil
}

// Each is a condition on named pods, which must be there.
func Each(names []string, check func(local.PodView) error) Condition {
	return func(s local.Snapshot) error {
		for _, name := range names {
			v := Find(s, name)
			if v == nil {
				return fmt.Errorf("pod %s isn't there", name)
			}
			if err := check(*v); err != nil {
				return fmt.Errorf("pod %s: %w", name, err)
			}
		}
		return nil
	}
}

// Ready is the condition that the pods run and are ready.
func Ready(names ...string) Condition { return Each(names, ready) }

func ready(v local.PodView) error {
	if v.Pod.DeletionTimestamp != nil {
		return errors.New("is being stopped")
	}
	for _, c := range v.Pod.Status.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("isn't ready: phase %s, %s", v.Pod.Status.Phase, v.Waiting())
}

// Only is the condition that these pods are all there are, stopping ones included.
func Only(names ...string) Condition {
	return func(s local.Snapshot) error {
		if !s.Agent.Synced {
			return errors.New("the sources haven't reported")
		}
		for _, v := range s.Pods {
			if !slices.Contains(names, strings.TrimSuffix(v.Pod.Name, "-"+Name)) {
				return fmt.Errorf("pod %s is there", v.Pod.Name)
			}
		}
		if len(s.Pods) != len(names) {
			return fmt.Errorf("there are %d pods, want %d", len(s.Pods), len(names))
		}
		return nil
	}
}

// Phase is the condition that the pod is in this phase.
func Phase(name string, want v1.PodPhase) Condition {
	return Each([]string{name}, func(v local.PodView) error {
		if v.Pod.Status.Phase != want {
			return fmt.Errorf("phase %s, want %s", v.Pod.Status.Phase, want)
		}
		return nil
	})
}

// Changed is the condition that the pod is ready and has another UID than this one.
func Changed(name string, old local.Snapshot) Condition {
	return Each([]string{name}, func(v local.PodView) error {
		if v.Pod.UID == Find(old, name).Pod.UID {
			return errors.New("still has its old UID")
		}
		return ready(v)
	})
}

// Problem is the condition that a problem with all these words is reported.
func Problem(words ...string) Condition {
	return func(s local.Snapshot) error {
		reported := make([]string, 0, len(s.Problems))
		for _, p := range s.Problems {
			text := p.Origin + ": " + p.Message
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(text, w) }) {
				return nil
			}
			reported = append(reported, text)
		}
		return fmt.Errorf("no problem with %q is reported, only %q", words, reported)
	}
}

// NoProblems is the condition that nothing is reported.
func NoProblems(s local.Snapshot) error {
	if len(s.Problems) > 0 {
		return fmt.Errorf("%s: %s", s.Problems[0].Origin, s.Problems[0].Message)
	}
	return nil
}

// Stale is the condition that an older version of the pod's manifest is kept, for
// a reason with this word; an empty word stands for "it is up to date".
func Stale(name, word string) Condition {
	return Each([]string{name}, func(v local.PodView) error {
		if word == "" && v.Stale != "" || !strings.Contains(v.Stale, word) {
			return fmt.Errorf("stale: %q, want %q", v.Stale, word)
		}
		return nil
	})
}

// Stopping is the condition that the pod is on its way out, or gone.
func Stopping(name string) Condition {
	return func(s local.Snapshot) error {
		if v := Find(s, name); v != nil && v.Pod.DeletionTimestamp == nil {
			return fmt.Errorf("pod %s isn't being stopped", name)
		}
		return nil
	}
}
