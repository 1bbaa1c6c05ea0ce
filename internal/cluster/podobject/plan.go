package podobject

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/conversion"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// action is what is to be done about a pod's object.
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
	// was is the status that was told, is the one to tell.
	was, is *v1.PodStatus
}

// word is what this node says of a pod.
type word struct {
	// status is what it is like; nil if nothing is known yet.
	status *v1.PodStatus
	// gone says that the status is final, and nothing keeps the object from going.
	gone bool
	// mirror says that it is said of a static pod.
	mirror bool
}

// history is what was done about a pod's object before.
type history struct {
	// differs is since when the status differs from what was told; zero if it doesn't.
	differs time.Time
	// sent is the status that was told last, and kept what the API server made of it: it may not know each field.
	sent, kept *v1.PodStatus
	// deleted says that the object was deleted. It may stay, for what somebody else has to do (finalizers).
	deleted bool
	// backoff says when the next call may be made.
	backoff apiclient.Backoff
}

const (
	// hold is how long a detail waits for more to be told with it, holdEnding that of a pod that is being deleted,
	// whose end is what is waited for.
	hold       = 300 * time.Millisecond
	holdEnding = 5 * time.Second
	// holdStarting is, from the time on when its sandbox was ready, that of a pod that was told to be starting: mostly
	// it runs before that time is over, which is told at once, and nobody can use its address before. Its conditions
	// have their own times. holdWaiting is that of one that waits for its sandbox, of which nothing is worth a call but
	// what keeps it from starting.
	holdStarting = 3 * time.Second
	holdWaiting  = 10 * time.Second
	// mirrorHold is that of mirror pods, whose details no controller waits for: nodes whose static pods all start at
	// once are those that boot.
	mirrorHold = 3 * time.Second
)

// plan is the step that is due, or due next. It is pure, but for what it remembers in h of when it saw a difference.
func plan(api *v1.Pod, w word, h *history, equal conversion.Equalities, now time.Time) step {
	if w.status == nil {
		return step{}
	}
	if over := pod.Terminal(api.Status.Phase); over != "" && over != w.status.Phase {
		// Somebody has ended the pod; that binds, and its worker is about to say so. A mirror pod is about to be made
		// again.
		return step{}
	}
	was, is := told(&api.Status, w.status), tells(&api.Status, w.status)
	same := equal.DeepEqual(was, is) || h.sent != nil && equal.DeepEqual(h.sent, is) && equal.DeepEqual(h.kept, was)
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
		if c := condition(is, v1.PodReadyToStartContainers); c != nil && c.Status == v1.ConditionTrue {
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
