package probe

import (
	"cmp"
	"context"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// maxMessage limits the message of a result, in bytes: the journal contains it with each decision.
const maxMessage = 1024

// change holds the data of a try that is reported after the lock is released.
type change struct {
	uid types.UID
	pod *v1.Pod
	key pod.Probe
	out handler.Outcome
	// changed says that the probe's result changed.
	changed bool
}

// try carries out one try of a probe and reports its outcome.
func (m *Manager) try(ctx context.Context, e *entry) {
	if ctx.Err() != nil {
		return // Run ends
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	target, spec, ok := m.start(e, cancel)
	if !ok {
		return
	}
	start := m.now()
	out := m.opts.Handler.Probe(ctx, target, spec)
	if n := m.finish(ctx, e, out, start); n != nil {
		m.report(n)
	}
}

// start marks a try as under way; ok is false if the probe isn't requested any more.
func (m *Manager) start(e *entry, cancel context.CancelFunc) (t handler.Target, spec *v1.Probe, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !e.wanted {
		return handler.Target{}, nil, false
	}
	e.phase, e.cancel = running, cancel
	return handler.Target{Pod: e.owner.pod, Container: e.container, ID: e.key.ID, PodIP: e.owner.ip}, e.spec, true
}

// finish applies the outcome of a try that began at start. It returns the change to report; nil if there is none.
func (m *Manager) finish(ctx context.Context, e *entry, out handler.Outcome, start time.Duration) *change {
	m.mu.Lock()
	defer m.mu.Unlock()
	end := m.now()
	e.cancel = nil
	if !e.wanted {
		delete(m.late, lateKey{e.owner.uid, e.key})
		return nil
	}
	if ctx.Err() != nil {
		// A cancelled try says nothing about the container: Run ends, or drop cancelled the probe. drop holds the
		// lock, so that no cancellation is missed here.
		m.await(e, max(e.due, end))
		return nil
	}
	s := e.owner
	m.opts.Meter.Tried(s.pod, e.key.Container, e.key.Kind, out.State, end-start)
	changed := e.count(out)
	if changed {
		s.stale = true
	}
	if e.final() {
		e.phase = held
	} else {
		m.await(e, e.after(start, end))
	}
	if out.State == handler.Success && !changed {
		return nil
	}
	return &change{uid: s.uid, pod: s.pod, key: e.key, out: out, changed: changed}
}

// report wakes the pod's worker if the result changed, and records an event unless the outcome is Success.
func (m *Manager) report(n *change) {
	if n.changed {
		m.opts.Wake(n.uid)
		m.opts.Log.V(2).Info("Probe result changed", "pod", klog.KObj(n.pod), "containerName", n.key.Container,
			"probeType", n.key.Kind, "success", n.out.State != handler.Failure)
	}
	event := pod.Event{Type: v1.EventTypeWarning, Reason: pod.ReasonUnhealthy, Container: n.key.Container}
	var verb string
	switch n.out.State {
	case handler.Success:
		return
	case handler.Warning:
		event.Reason, verb = pod.ReasonProbeWarning, "warning"
	case handler.Failure:
		verb = "failed"
	default:
		verb = "errored and resulted in unknown state"
	}
	event.Message = title(n.key.Kind) + " probe " + verb + ": " + cmp.Or(n.out.Output, n.out.Message)
	m.opts.Recorder.Event(n.pod, event)
}

// title is the name of a kind at the beginning of an event's message.
func title(kind pod.ProbeKind) string {
	return strings.ToUpper(string(kind[:1])) + string(kind[1:])
}

// bounded makes a message suitable for a result: valid UTF-8, and of limited length.
func bounded(s string) string {
	const more = "..."
	if len(s) > maxMessage {
		end := maxMessage - len(more)
		for end > 0 && !utf8.RuneStart(s[end]) {
			end--
		}
		s = s[:end] + more
	}
	return strings.ToValidUTF8(s, "?")
}
