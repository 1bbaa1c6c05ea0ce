// Package runonce implements the kubelet's --runonce: it waits until the node's pods are up or have failed, and
// prints the result of each. The pods keep running.
package runonce

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// limit is the time for all pods to come up, about as long as the kubelet keeps trying.
const limit = 15 * time.Minute

// upFor is the time that a pod's containers must have run before the pod counts as up: most containers that can't
// work exit within it.
const upFor = 2 * time.Second

// Errors of Run when not every pod is up.
var (
	errFailed = errors.New("not all pods came up")
	// ErrBrokenOff replaces the context's error, which callers treat as success: an exit code of 0 has to mean that
	// all pods are up.
	ErrBrokenOff = errors.New("--runonce was broken off before all pods were up; those that have started run on")
)

// View shows the pods of the node.
type View interface {
	Snapshot(context.Context) (local.Snapshot, error)
	// Changed returns a channel that receives a value after Snapshot may have changed. end ends the subscription.
	Changed() (changed <-chan struct{}, end func())
}

// Runner waits until all pods are up or have failed.
type Runner struct {
	view   View
	out    io.Writer
	result error
}

// New returns a Runner that prints the pods' results to out.
func New(view View, out io.Writer) *Runner {
	return &Runner{view: view, out: out, result: ErrBrokenOff}
}

// Run waits until every pod is up or has failed and prints the results, or until ctx ends. It always returns nil: see
// Result.
func (r *Runner) Run(ctx context.Context) error {
	r.result = r.watch(ctx)
	return nil
}

// Result returns the result of Run: nil if all pods are up, ErrBrokenOff if ctx ended before. It must not be called
// during Run.
func (r *Runner) Result() error { return r.result }

func (r *Runner) watch(ctx context.Context) error {
	changed, end := r.view.Changed()
	defer end()
	over := time.NewTimer(limit)
	defer over.Stop()
	for {
		s, err := r.view.Snapshot(ctx)
		if err != nil {
			return err
		}
		now := resultsOf(s, time.Now())
		if now.complete {
			return now.print(r.out)
		}
		var again <-chan time.Time
		if !now.again.IsZero() {
			again = time.After(time.Until(now.again))
		}
		select {
		case <-ctx.Done():
			return ErrBrokenOff
		case <-over.C:
			now.failed = true
			return errors.Join(now.print(r.out), gaveUp(s))
		case <-changed:
		case <-again:
		}
	}
}

func gaveUp(s local.Snapshot) error {
	if !s.Agent.Synced {
		return fmt.Errorf("gave up after %s: not every source of pods has answered (staticPodPath, staticPodURL)",
			limit)
	}
	return fmt.Errorf("gave up after %s", limit)
}

// results has the results of the pods, one line per pod.
type results struct {
	lines            []string
	complete, failed bool
	// again is the time at which more pods count as up (upFor); zero if none will.
	again time.Time
}

func (r *results) print(out io.Writer) error {
	if _, err := fmt.Fprint(terminal.NewWriter(out), strings.Join(r.lines, "")); err != nil {
		return err
	}
	if r.failed {
		return errFailed
	}
	return nil
}

// resultsOf computes the results of a snapshot. They are complete if all pods are up or have failed. An unusable
// manifest counts as a failure.
func resultsOf(s local.Snapshot, now time.Time) results {
	r := results{complete: s.Agent.Synced}
	for i := range s.Pods {
		r.add(&s.Pods[i], now)
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

func (r *results) add(v *local.PodView, now time.Time) {
	if v.Stopped {
		r.lines = append(r.lines, fmt.Sprintf("%s/%s: %s\n", v.Pod.Namespace, v.Pod.Name, v.Word()))
		return
	}
	word, done, failed := cameTo(v.Pod)
	if proven := lastStart(v.Pod).Add(upFor); done && !failed && proven.After(now) {
		done = false
		if r.again.IsZero() || proven.Before(r.again) {
			r.again = proven
		}
	}
	line := fmt.Sprintf("%s/%s: %s", v.Pod.Namespace, v.Pod.Name, word)
	if why := reasons(v); len(why) > 0 && (!done || failed) {
		line += " (" + strings.Join(why, "; ") + ")"
	}
	r.lines = append(r.lines, line+"\n")
	r.complete = r.complete && done
	r.failed = r.failed || failed
}

// lastStart returns the time at which the latest of a pod's running containers started; zero if none runs.
func lastStart(p *v1.Pod) (last time.Time) {
	for i := range p.Status.ContainerStatuses {
		if c := p.Status.ContainerStatuses[i].State.Running; c != nil && c.StartedAt.After(last) {
			last = c.StartedAt.Time
		}
	}
	return last
}

// reasons returns the reasons for which a pod isn't up: its waits or, if it has none, its status message and the exit
// codes of its containers.
func reasons(v *local.PodView) []string {
	if waits := v.Waiting(); waits != "" {
		return []string{waits}
	}
	var list []string
	if v.Pod.Status.Message != "" {
		list = append(list, v.Pod.Status.Message)
	}
	for _, statuses := range [][]v1.ContainerStatus{v.Pod.Status.InitContainerStatuses,
		v.Pod.Status.ContainerStatuses} {
		for i := range statuses {
			if t := statuses[i].State.Terminated; t != nil && t.ExitCode != 0 {
				list = append(list, fmt.Sprintf("container %s: ended with code %d", statuses[i].Name, t.ExitCode))
			}
		}
	}
	return list
}

// stuck reports whether a container waits for something that only time or a person can fix.
func stuck(w *v1.ContainerStateWaiting) bool {
	if w == nil {
		return false
	}
	switch pod.Reason(w.Reason) {
	case pod.ReasonCrashLoopBackOff, pod.ReasonImagePullBackOff, pod.ReasonErrImageNeverPull,
		pod.ReasonInvalidImageName,
		pod.ReasonCreateContainerConfigError, pod.ReasonCreateContainerError, pod.ReasonRunContainerError:
		return true
	}
	return false
}

// cameTo returns a word for the pod's state. done says that this is its result unless the pod changes later; failed
// says that the result is a failure. A pod is up when its containers have started; it needn't be ready.
func cameTo(p *v1.Pod) (word string, done, failed bool) {
	word = podstatus.Word(p)
	switch {
	case p.Status.Phase == v1.PodFailed:
		return word, true, true
	case p.Status.Phase == v1.PodSucceeded || podstatus.Ready(p):
		return word, true, false
	case p.DeletionTimestamp != nil:
		return word, false, false // no result yet: the pod that replaces it matters
	}
	started := 0
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := range list {
			if stuck(list[i].State.Waiting) {
				return word, true, true
			}
		}
	}
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		ended := c.State.Terminated
		switch {
		case ended != nil && ended.ExitCode != 0 && p.Spec.RestartPolicy == v1.RestartPolicyNever:
			return word, true, true // the other containers don't matter
		case c.Started != nil && *c.Started, ended != nil && ended.ExitCode == 0:
			started++
		}
	}
	return word, started > 0 && started == len(p.Spec.Containers), false
}
