package apisource

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/lastknown"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// hold is the state while pods continue to run for some time although the API server doesn't have them any more.
type hold struct {
	claims map[types.UID]desired.Claim
	until  time.Time
	// ask is when to query the API server again, unless a complete list arrives before.
	ask     time.Time
	problem pod.Problem
}

const (
	// askAgain is the delay before the API server is queried again after a failure.
	askAgain = time.Second
	// askLimit is the timeout of one call of Config.Ask.
	askLimit = 10 * time.Second
)

// judge reports whether the API server's list of pods counts, and when to check again if nothing else happens before.
// listed says that a complete list has arrived since the last call that returned true.
//
// An API server that has none of the pods that it had before may have lost its data, or may belong to another cluster.
// A node isn't allowed to query the cluster's identity; but in both cases, the object of this node has another UID or
// doesn't exist. The pods continue to run for some time so that a user can fix the problem. They also continue until
// the API server responds: an unreachable API server may soon be restored.
func (s *Source) judge(ctx context.Context, pods []*v1.Pod, listed bool) (counts bool, again time.Time) {
	known := s.claims
	if !s.synced {
		known = s.restored
		if len(s.held) > 0 { // the other pods may be from this API server or from another one
			known = maps.Clone(known)
			maps.DeleteFunc(known, func(uid types.UID, _ desired.Claim) bool { return !slices.Contains(s.held, uid) })
		}
	}
	if s.hold != nil {
		known = s.hold.claims
	}
	has := slices.ContainsFunc(pods, func(p *v1.Pod) bool { _, is := known[p.UID]; return is })
	switch {
	case s.hold != nil && has:
		s.release(true)
		return true, time.Time{}
	case s.hold != nil && !listed && time.Now().Before(s.hold.ask):
		return true, s.hold.ask
	case s.hold == nil && (has || len(known) == 0 || s.cluster == "" || !listed):
		if uid := s.conf.NodeUID(); uid != "" && uid != s.cluster {
			s.cluster = uid
			s.conf.Known.SetNodeUID(uid)
		}
		return true, time.Time{}
	}
	limited, cancel := context.WithTimeout(ctx, askLimit)
	uid, there, err := s.conf.Ask(limited)
	cancel()
	now := time.Now()
	// The list of pods is older than this response: the server's data may have been restored between the two.
	outdated := slices.ContainsFunc(there, func(uid types.UID) bool { _, is := known[uid]; return is })
	switch {
	case err != nil || outdated:
		if s.hold != nil {
			s.hold.ask = now.Add(askAgain)
		}
		return s.hold != nil, now.Add(askAgain)
	case uid == s.cluster && s.hold == nil:
		return true, time.Time{}
	case uid == s.cluster, s.hold != nil && !now.Before(s.hold.until):
		s.release(false)
		return true, time.Time{}
	case s.hold == nil:
		s.hold = &hold{claims: known, until: now.Add(s.conf.Hold)}
		what := fmt.Sprintf("has another object of this node (UID %s)", uid)
		if uid == "" {
			what = "has no object of this node"
		}
		s.hold.problem = pod.Problem{Source: pod.SourceAPI, Origin: lastknown.Origin, Since: now,
			Message: fmt.Sprintf("it has none of the %d pods that ran here for it, and %s than before (%s), as when "+
				"its data is lost or it is another cluster's: these pods run on until %s, then they are ended; "+
				"restore the API server's data, or correct --kubeconfig, before that", len(known), what, s.cluster,
				s.hold.until.Format(time.RFC3339))}
		s.recordEvent("The API server " + s.hold.problem.Message)
	}
	s.hold.ask = s.hold.until
	return true, s.hold.ask
}

// release ends the hold. again says that the API server has pods of the hold again.
func (s *Source) release(again bool) {
	if again {
		s.recordEvent(fmt.Sprintf("The API server has pods of this node again, and counts: it had none of %d",
			len(s.hold.claims)))
	} else {
		s.recordEvent(fmt.Sprintf("The API server still has none of the %d pods that ran here for it: they are ended",
			len(s.hold.claims)))
	}
	s.hold = nil
}

func (s *Source) recordEvent(message string) {
	s.holdChanged = true
	s.conf.Log.Info("Event occurred", "reason", pod.ReasonPodsHeld, "message", message)
	s.conf.Event(pod.Event{Type: v1.EventTypeWarning, Reason: pod.ReasonPodsHeld, Message: message})
}
