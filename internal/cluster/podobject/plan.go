package podobject

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// action is the kind of a call about a pod's object.
type action int

const (
	nothing action = iota
	patchStatus
	deleteObject
)

// step is one call about a pod's object, and when it is due.
type step struct {
	action action
	urgency
	due time.Time
	// was is the agent's part of the status at the API server; is is the status to send.
	was, is *v1.PodStatus
}

// word is this node's report of a pod.
type word struct {
	// status is the pod's status; nil if there is none yet.
	status *v1.PodStatus
	// gone says that the status is final, and that the object may be deleted.
	gone bool
	// mirror says that the report is about a static pod.
	mirror bool
}

// history is the state of the calls about a pod's object.
type history struct {
	// differs is since when the status differs from that at the API server; zero if it doesn't.
	differs time.Time
	// sent is the status that was sent last, acknowledged the server's version of it, which may be missing fields that
	// the server doesn't have.
	sent, acknowledged *v1.PodStatus
	// deleted says that the object was deleted. It may still exist because of finalizers.
	deleted bool
	// backoff says when the next call may be made.
	backoff apiclient.Backoff
}

const (
	// hold is how long a detail waits so that later details are sent with it. holdEnding replaces hold for a pod that
	// is being deleted: only the pod's end matters.
	hold       = 300 * time.Millisecond
	holdEnding = 5 * time.Second
	// holdStarting replaces hold for a starting pod whose sandbox is ready, counted from when the sandbox became ready.
	// Before this time is over, most pods are running, which is sent immediately; until then no client can use the
	// pod's address. The conditions have times of their own, so the delay doesn't falsify them. holdWaiting replaces
	// hold for a pod that waits for its sandbox: only a reason why the pod can't start is worth a call.
	holdStarting = 3 * time.Second
	holdWaiting  = 10 * time.Second
	// mirrorHold replaces hold for mirror pods: no controller waits for their details, and all static pods of a node
	// start at the same time when it boots.
	mirrorHold = 3 * time.Second
)

// plan returns the step that is due now or next. It is pure, except that it records in h since when the statuses
// differ.
func plan(api *v1.Pod, w word, h *history, equal conversion.Equalities, now time.Time) step {
	if w.status == nil {
		return step{}
	}
	if over := pod.Terminal(api.Status.Phase); over != "" && over != w.status.Phase {
		// Another client has set a terminal phase, which is final. The pod's worker is about to report the same phase;
		// a mirror pod is about to be created again.
		return step{}
	}
	was, is := owned(&api.Status, &api.Status, w.status), owned(w.status, &api.Status, w.status)
	same := equal.DeepEqual(was, is) ||
		h.sent != nil && equal.DeepEqual(h.sent, is) && equal.DeepEqual(h.acknowledged, was)
	if same {
		h.differs = time.Time{}
	} else if h.differs.IsZero() {
		h.differs = now
	}
	soon := urgent(was, is)
	if w.gone && api.DeletionTimestamp != nil && pod.Terminal(api.Status.Phase) != "" && !h.deleted &&
		(same || soon == detail) {
		return step{action: deleteObject, urgency: terminal, due: later(now, h.backoff.Due())}
	}
	if same {
		return step{}
	}
	s := step{action: patchStatus, urgency: soon, due: h.differs, was: was, is: is}
	switch {
	case soon != detail:
	case w.mirror:
		s.due = s.due.Add(mirrorHold)
	case api.DeletionTimestamp != nil:
		s.due = s.due.Add(holdEnding)
	case onlyStarts(was, is, equal):
		if c := pod.Condition(is, v1.PodReadyToStartContainers); c != nil && c.Status == v1.ConditionTrue {
			s.due = later(s.due.Add(hold), c.LastTransitionTime.Add(holdStarting))
		} else {
			s.due = s.due.Add(holdWaiting)
		}
	default:
		s.due = s.due.Add(hold)
	}
	s.due = later(s.due, h.backoff.Due())
	return s
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
