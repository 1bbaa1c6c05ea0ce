package manager

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/atomicwriter"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
)

// refresherConfig is what a Refresher is built from. Every field is needed.
type refresherConfig struct {
	Ops *operations.Group
	// Mounted lists what is mounted, and Holds reports whether a volume still is.
	Mounted func() []*volumestate.Mounted
	Holds   func(*volumestate.Mounted) bool
	// Look sees the newest inputs of a volume of its pod, which Pod knows the newest version of; nil for
	// a pod that nobody wants.
	Look func(context.Context, *volumestate.Wanted, *v1.Pod) volumestate.Sight
	Pod  func(types.UID) *v1.Pod
	// Refresh brings one volume up to date, and reports whether it wasn't.
	Refresh func(context.Context, *volumestate.Mounted, *v1.Pod) (changed bool, err error)
	// RecordEvent records an event.
	RecordEvent func(*v1.Pod, pod.Event)
	// Wake is filled when Pass is to be called again.
	Wake wake.Slot
}

// refresher keeps the content of mounted volumes up to date: it has those volumes refreshed whose
// inputs have changed, and no others. Its methods are for one goroutine; its operations have others, which
// record their results in it.
type refresher struct {
	conf  refresherConfig
	known map[*volumestate.Mounted]*state
	timer *time.Timer
}

// state is how one volume is.
type state struct {
	op *operations.Operation
	// What follows is the operation's while there is one.

	// pod is the newest version of its pod that was wanted: one that is being stopped isn't any more.
	pod *v1.Pod
	// seen is what the content is made from.
	seen volumestate.Sight
	// tried is what it couldn't be made from last, reported what was said of that, count how often
	// that failed in a row, and due when it is worth another try; all zero if nothing failed.
	tried    volumestate.Sight
	reported string
	count    int
	due      time.Time
	// tidy is when it is refreshed without a change, to have the old content removed; zero if there is none.
	tidy time.Time
}

// newRefresher makes a refresher that knows of nothing yet.
func newRefresher(c refresherConfig) *refresher {
	return &refresher{conf: c, known: map[*volumestate.Mounted]*state{}}
}

// Due is when something that failed is to be tried again, by another Pass; never, if nothing did.
func (k *refresher) Due() <-chan time.Time {
	if k.timer == nil {
		return nil
	}
	return k.timer.C
}

// Stop stops waiting for that.
func (k *refresher) Stop() {
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}

// Pass begins to bring those volumes up to date whose inputs have changed. It waits for none: when one has
// come to its end, Wake is filled.
func (k *refresher) Pass(ctx context.Context) {
	k.Stop()
	now := time.Now()
	var next time.Time
	known := make(map[*volumestate.Mounted]*state, len(k.known))
	pods := map[types.UID]*v1.Pod{}
	for _, e := range k.conf.Mounted() {
		if _, ok := e.Plugin.(volume.Live); !ok {
			continue
		}
		s := k.known[e]
		if s == nil {
			s = &state{pod: e.Pod, seen: e.Seen}
			if e.Updated {
				s.tidy = now.Add(atomicwriter.Grace)
			}
		}
		known[e] = s
		if s.op != nil && !s.op.Ended() {
			continue // what changes meanwhile is seen when it has
		}
		p, ok := pods[e.Place.UID]
		if !ok {
			p = k.conf.Pod(e.Place.UID)
			pods[e.Place.UID] = p
		}
		if p != nil {
			s.pod = p
		}
		due, begin := s.outdated(k.conf.Look(ctx, e.Wanted, s.pod), now)
		if begin {
			k.refresh(ctx, e, s)
		} else if !due.IsZero() && (next.IsZero() || due.Before(next)) {
			next = due
		}
	}
	k.known = known
	if !next.IsZero() {
		k.timer = time.NewTimer(time.Until(next))
	}
}

// outdated reports whether the volume isn't what its inputs are now and is to be refreshed, or else when
// it is to be looked at again; zero if only a change can help.
func (s *state) outdated(now volumestate.Sight, at time.Time) (due time.Time, begin bool) {
	switch {
	case !s.tidy.IsZero() && !at.Before(s.tidy):
		return time.Time{}, true
	case s.seen.Same(now), !now.Known():
		// When more is known, that is a change.
		return s.tidy, false
	case s.tried.Same(now) && (s.due.IsZero() || at.Before(s.due)):
		return s.due, false
	}
	return time.Time{}, true
}

func (k *refresher) refresh(ctx context.Context, e *volumestate.Mounted, s *state) {
	s.op = k.conf.Ops.Begin(ctx, operations.Task{
		Key: e.Key(), Kind: volumestate.Refresh + e.Name(), Owner: string(e.Place.UID),
		Do: func(ctx context.Context, _ *operations.Operation) error {
			if !k.conf.Holds(e) {
				return nil
			}
			if p := k.conf.Pod(e.Place.UID); p != nil {
				s.pod = p
			}
			// What changes from here on is seen by the next pass.
			sight := k.conf.Look(ctx, e.Wanted, s.pod)
			changed, err := k.conf.Refresh(ctx, e, s.pod)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.tidy = time.Time{}
			if changed && !s.seen.Same(sight) {
				s.tidy = time.Now().Add(atomicwriter.Grace)
			}
			k.recordResult(e, s, sight, err)
			return err
		},
	})
	s.op.Notify(k.conf.Wake)
}

// recordResult records the result of a refresh. The same failure is reported once.
func (k *refresher) recordResult(e *volumestate.Mounted, s *state, sight volumestate.Sight, err error) {
	if err == nil {
		s.seen, s.tried, s.reported, s.count, s.due = sight, volumestate.Sight{}, "", 0, time.Time{}
		return
	}
	s.tried, s.due = sight, time.Time{}
	var awaits *volume.AwaitsError
	if !errors.As(err, &awaits) {
		s.count++
		s.due = time.Now().Add(k.conf.Ops.Backoff(s.count))
	}
	message := fmt.Sprintf("%s; it keeps the content that it has", volumestate.Problem{Spec: e.Spec, Err: err})
	if s.reported != message {
		s.reported = message
		k.conf.RecordEvent(s.pod, pod.Event{Type: v1.EventTypeWarning, Reason: pod.ReasonFailedMount, Message: message})
	}
}
