package plan

import (
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// AddWait adds a wait of the pod.
func (p *Plan) AddWait(w pod.Wait) { p.Waiting = append(p.Waiting, w) }

// AddActionWait adds the wait for an action under way on a container, or on the pod as a whole.
func (p *Plan) AddActionWait(container string, kind pod.ActionKind) {
	p.AddWait(pod.Wait{Code: pod.WaitAction, Container: container, Action: kind})
}

// AddRetryWait adds the wait for the retry of an action if the action has failed, and reports whether it has failed.
func (p *Plan) AddRetryWait(container string, a pod.Action) bool {
	r, ok := p.Retrying(a)
	if ok {
		p.AddWait(pod.Wait{Code: pod.WaitRetry, Container: container, Next: r.At, Action: a.Kind, Attempts: r.Count,
			Reason: r.Failure.Reason, Message: r.Failure.Message, Object: r.Failure.Awaits, Image: a.Image,
			Disk: r.Failure.Disk, For: r.Failure.Wait})
	}
	return ok
}

// Date sets the start time of each wait, and returns these times by pod.Wait.Key. before is the result of Date in
// the previous decision.
func (p *Plan) Date(before map[string]time.Time) map[string]time.Time {
	if len(p.Waiting) == 0 {
		return nil
	}
	since := make(map[string]time.Time, len(p.Waiting))
	for i := range p.Waiting {
		w := &p.Waiting[i]
		key := w.Key()
		w.Since = p.Now
		if t, ok := before[key]; ok {
			w.Since = t
		}
		since[key] = w.Since
	}
	return since
}
