package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/cli/podstatus"
	"github.com/deckhand-node/deckhand/internal/local"
)

// onceLimit is how long pods may take to come up with --runonce: about as long as
// the kubelet goes on trying.
const onceLimit = 15 * time.Minute

// errOnceFailed is what --runonce comes to if not every pod is up.
var errOnceFailed = errors.New("not all pods came up")

// once brings the pods up and ends the agent (--runonce). The pods stay.
type once struct {
	view view
	out  io.Writer
	// over ends the agent. result is what came of it; to be read after the agent has ended.
	over   context.CancelFunc
	result error
}

// run waits until every pod is up or has failed, tells so of each, and ends the agent.
func (o *once) run(ctx context.Context) error {
	o.result = o.watch(ctx)
	o.over()
	<-ctx.Done()
	return nil
}

func (o *once) watch(ctx context.Context) error {
	changed, end := o.view.Changed()
	defer end()
	limit := time.NewTimer(onceLimit)
	defer limit.Stop()
	for {
		s, err := o.view.Snapshot(ctx)
		if err != nil {
			return err
		}
		if r := resultsOf(s); r.settled {
			return r.tell(o.out)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			r := resultsOf(s)
			r.failed = true
			return errors.Join(r.tell(o.out), fmt.Errorf("gave up after %s", onceLimit))
		case <-changed:
		}
	}
}

// results are what came of a set of pods, a line each.
type results struct {
	lines           []string
	settled, failed bool
}

func (r *results) tell(out io.Writer) error {
	if _, err := fmt.Fprint(out, strings.Join(r.lines, "")); err != nil {
		return err
	}
	if r.failed {
		return errOnceFailed
	}
	return nil
}

// resultsOf looks whether all pods of a snapshot are up or have failed. A manifest that
// can't be used is a failure, too.
func resultsOf(s local.Snapshot) results {
	r := results{settled: s.Agent.Synced}
	for i := range s.Pods {
		v := &s.Pods[i]
		word, done, failed := cameTo(v.Pod)
		line := fmt.Sprintf("%s/%s: %s", v.Pod.Namespace, v.Pod.Name, word)
		if !done || failed {
			if len(v.Reasons) > 0 {
				line += " (" + strings.Join(v.Reasons, "; ") + ")"
			}
		}
		r.lines = append(r.lines, line+"\n")
		r.settled = r.settled && done
		r.failed = r.failed || failed
	}
	for _, p := range s.Problems {
		name := p.Origin
		if p.Pod != "" {
			name += " (pod " + p.Pod + ")"
		}
		r.lines = append(r.lines, name+": "+strings.ReplaceAll(p.Message, "\n", "\n  ")+"\n")
		r.failed = true
	}
	return r
}

// stuck are the reasons of waiting containers that only time or a person can mend.
var stuck = map[string]bool{
	"CrashLoopBackOff": true, "ImagePullBackOff": true, "ErrImageNeverPull": true, "InvalidImageName": true,
	"CreateContainerConfigError": true, "CreateContainerError": true, "RunContainerError": true,
}

// cameTo says in a word what became of a pod; whether that is all for now; and whether
// it failed. A pod is up when its containers have started: readiness may take as long
// as it likes.
func cameTo(p *v1.Pod) (word string, done, failed bool) {
	word = podstatus.Word(p)
	switch {
	case p.Status.Phase == v1.PodFailed:
		return word, true, true
	case p.Status.Phase == v1.PodSucceeded || podstatus.Ready(p):
		return word, true, false
	case p.DeletionTimestamp != nil:
		return word, false, false // its successor counts
	}
	started := 0
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if w := list[i].State.Waiting; w != nil && stuck[w.Reason] {
				return word, true, true
			}
		}
	}
	for i := range p.Status.ContainerStatuses {
		if c := &p.Status.ContainerStatuses[i]; c.Started != nil && *c.Started || c.State.Terminated != nil && c.State.Terminated.ExitCode == 0 {
			started++
		}
	}
	return word, started > 0 && started == len(p.Spec.Containers), false
}
