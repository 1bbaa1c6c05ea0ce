package manager

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
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
	// Holds reports whether a volume is mounted still.
	Holds func(*volumestate.Mounted) bool
	// Look sees the newest inputs of a volume of its pod, which Pod knows the newest version of; nil for
	// a pod that nobody wants.
	Look func(context.Context, *volumestate.Wanted, *v1.Pod) volumestate.Sight
	Pod  func(types.UID) *v1.Pod
	// Refresh brings one volume up to date, and reports whether it wasn't, and whether old content stayed because it is
	// held.
	Refresh func(context.Context, *volumestate.Mounted, *v1.Pod) (changed, held bool, err error)
	// RecordEvent records an event.
	RecordEvent func(*v1.Pod, pod.Event)
	// Wake is filled when Pass is to be called again.
	Wake wake.Slot
}

// refresher keeps the content of mounted volumes up to date: it looks at those volumes of whose inputs it is told that
// they have changed, and at no others. Its methods are for one goroutine; its operations have others, which
// record their results in it.
type refresher struct {
	conf  refresherConfig
	known map[*volumestate.Mounted]*state
	// made are the volumes by their inputs, busy those with which there is something to do, be it later.
	made  map[pod.Object][]*state
	busy  map[*state]struct{}
	timer *time.Timer
}

// state is how one volume is.
type state struct {
	*volumestate.Mounted
	op *operations.Operation
	// stale says that inputs have changed since it was looked at, node that it is the node, which isn't in sight.
	stale, node bool
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
	// renew is when something that it is made from is due to be renewed; zero for never.
	renew time.Time
}

// heldGrace is how long old content that containers have parts of (subPath) stays until the volume is tidied again.
const heldGrace = 5 * time.Minute

// maxJitter spreads renewals that are due at the same time.
const maxJitter = 10 * time.Second

// see takes in what the content is made from.
func (s *state) see(now volumestate.Sight) {
	s.seen, s.renew = now, now.Renew()
	if !s.renew.IsZero() {
		s.renew = s.renew.Add(rand.N(maxJitter))
	}
}

// newRefresher makes a refresher that knows of nothing yet.
func newRefresher(c refresherConfig) *refresher {
	return &refresher{conf: c, busy: map[*state]struct{}{}}
}

// Due is when there is something to do for another Pass; never, if there is nothing.
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

// Follow takes in what is mounted now. Something may have changed before it was known to be.
func (k *refresher) Follow(mounted []*volumestate.Mounted) {
	before := k.known
	k.known, k.made = make(map[*volumestate.Mounted]*state, len(mounted)), map[pod.Object][]*state{}
	for _, e := range mounted {
		if _, ok := e.Plugin.(volume.Live); !ok {
			continue
		}
		s := before[e]
		if s == nil {
			s = &state{Mounted: e, pod: e.Pod, stale: true}
			s.see(e.Seen)
			if e.Updated {
				s.tidy = time.Now().Add(atomicwriter.Grace)
			}
			k.busy[s] = struct{}{}
		}
		k.known[e] = s
		for _, in := range volumestate.Inputs(e.Pod, e.Spec.Volume) {
			k.made[in] = append(k.made[in], s)
		}
	}
	maps.DeleteFunc(k.busy, func(s *state, _ struct{}) bool { return k.known[s.Mounted] == nil })
}

// Changed has those volumes looked at that are made from one of these: all of them, for the zero object.
func (k *refresher) Changed(objects ...pod.Object) {
	for _, o := range objects {
		list := k.made[o]
		if o == (pod.Object{}) {
			list = slices.Collect(maps.Values(k.known))
		}
		for _, s := range list {
			s.stale = true
			k.busy[s] = struct{}{}
			s.node = s.node || o == volumestate.Node
		}
	}
}

// Pass begins to bring those volumes up to date whose inputs have changed. It waits for none: when one has
// come to its end, Wake is filled.
func (k *refresher) Pass(ctx context.Context) {
	k.Stop()
	now := time.Now()
	var next time.Time
	for s := range k.busy {
		if s.op != nil && !s.op.Ended() {
			continue // what changes meanwhile is seen when it has
		}
		sight, begin := k.outdated(ctx, s, now)
		if begin {
			k.refresh(ctx, s, sight)
			continue
		}
		due := earliest(earliest(s.due, s.tidy), s.renew)
		if due.IsZero() {
			delete(k.busy, s)
		}
		next = earliest(next, due)
	}
	if !next.IsZero() {
		k.timer = time.NewTimer(time.Until(next))
	}
}

// earliest is the earlier of two times, of which the zero one is never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// outdated looks at the volume, if there is a reason to, and reports whether it is to be refreshed as its inputs are
// now.
func (k *refresher) outdated(ctx context.Context, s *state, at time.Time) (now volumestate.Sight, begin bool) {
	has := func(t time.Time) bool { return !t.IsZero() && !at.Before(t) }
	tidy, again, renew := has(s.tidy), has(s.due), has(s.renew)
	if !s.stale && !tidy && !again && !renew {
		return now, false
	}
	if s.node {
		s.seen = volumestate.Sight{}
	}
	s.stale, s.node = false, false
	if p := k.conf.Pod(s.Place.UID); p != nil {
		s.pod = p
	}
	now = k.conf.Look(ctx, s.Wanted, s.pod)
	switch {
	case tidy:
		return now, true
	case s.seen.Same(now), !now.Known():
		// When more is known, that is a change.
		s.due = now.Again()
		if renew {
			s.renew = time.Time{}
		}
		if !s.due.IsZero() && !s.seen.Renew().IsZero() {
			k.report(s, fmt.Errorf("it can't be renewed: %w", now.Why()))
		}
		return now, false
	}
	return now, again || !s.tried.Same(now)
}

// refresh begins to make the volume of its inputs. What changes from here on is seen when it has ended.
func (k *refresher) refresh(ctx context.Context, s *state, sight volumestate.Sight) {
	e := s.Mounted
	s.op = k.conf.Ops.Begin(ctx, operations.Task{
		Key: e.Key(), Kind: volumestate.Refresh + e.Name(), Owner: string(e.Place.UID),
		Do: func(ctx context.Context, _ *operations.Operation) error {
			if !k.conf.Holds(e) {
				return nil
			}
			if p := k.conf.Pod(e.Place.UID); p != nil {
				s.pod = p
			}
			changed, held, err := k.conf.Refresh(ctx, e, s.pod)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			s.tidy = time.Time{}
			switch {
			case changed && !s.seen.Same(sight):
				s.tidy = time.Now().Add(atomicwriter.Grace)
			case held:
				s.tidy = time.Now().Add(heldGrace)
			}
			k.recordResult(s, sight, err)
			return err
		},
	})
	s.op.Notify(k.conf.Wake)
}

// recordResult records the result of a refresh. The same failure is reported once.
func (k *refresher) recordResult(s *state, sight volumestate.Sight, err error) {
	if err == nil {
		s.see(sight)
		s.tried, s.reported, s.count, s.due = volumestate.Sight{}, "", 0, time.Time{}
		return
	}
	s.tried, s.due = sight, time.Time{}
	var awaits *volume.AwaitsError
	if !errors.As(err, &awaits) {
		s.count++
		s.due = time.Now().Add(k.conf.Ops.Backoff(s.count))
	}
	k.report(s, err)
}

// report tells why the volume isn't what it should be, once.
func (k *refresher) report(s *state, err error) {
	message := fmt.Sprintf("%s; it keeps the content that it has", volumestate.Problem{Spec: s.Spec, Err: err})
	if s.reported != message {
		s.reported = message
		k.conf.RecordEvent(s.pod, pod.Event{Type: v1.EventTypeWarning, Reason: pod.ReasonFailedMount, Message: message})
	}
}
