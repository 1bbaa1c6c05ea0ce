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

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/atomicwriter"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
)

// refresherConfig configures a refresher. Every field is required.
type refresherConfig struct {
	Ops *operations.Group
	// Holds reports whether a volume is still mounted.
	Holds func(*volumestate.Mounted) bool
	// Observe returns the versions of a volume's current inputs, for this version of the volume's pod.
	//
	// Pod returns the newest version of a pod, or nil if the pod isn't desired any more.
	Observe func(context.Context, *volumestate.Wanted, *v1.Pod) volumestate.Sight
	Pod     func(types.UID) *v1.Pod
	// Refresh updates one volume. It reports whether the content changed, and (held) whether old content was kept
	// because containers mount it as a subPath.
	Refresh func(context.Context, *volumestate.Mounted, *v1.Pod) (changed, held bool, err error)
	// RecordEvent records an event about a pod.
	RecordEvent func(*v1.Pod, pod.Event)
	// Wake is filled when a refresh has ended, so that Pass has to be called again.
	Wake wake.Slot
	// Freed returns how often a disk that couldn't be written has become writable again. DiskFailed reports such a
	// disk.
	Freed      func() uint64
	DiskFailed func(error)
}

// refresher updates the content of mounted volumes when their inputs have changed. Its methods are called by one
// goroutine; its operations run on others, and write their results to the state.
type refresher struct {
	conf  refresherConfig
	known map[*volumestate.Mounted]*state
	// made maps each input to the volumes that are made from it; busy has the volumes that Pass has to check, now or
	// later.
	made  map[pod.Object][]*state
	busy  map[*state]struct{}
	timer *time.Timer
}

// state is the refresher's state of one mounted volume.
type state struct {
	*volumestate.Mounted
	op *operations.Operation
	// freed is the result of Freed when the last refresh began.
	freed uint64
	// stale says that inputs have changed since the last check. node says that the node's allocatable resources have
	// changed; a Sight doesn't contain these.
	stale, node bool
	// While a refresh runs, only its operation may use the fields below.

	// pod is the newest version of the pod from the time when the pod was desired. A pod that is being stopped isn't
	// desired any more.
	pod *v1.Pod
	// seen has the versions of the inputs that the current content was made from.
	seen volumestate.Sight
	// tried has the versions of the inputs of the last failed refresh, reported is the message of the last event,
	// count is the number of failures in a row, and due is the time of the next try. All are zero after a success.
	tried    volumestate.Sight
	reported string
	count    int
	due      time.Time
	// noRoom says that the last refresh failed because the disk can't be written.
	noRoom bool
	// tidy is when to refresh the volume even without a change, in order to remove old content, or because its driver
	// requires repeated calls; zero for never.
	tidy time.Time
	// renew is when an input, such as a token, has to be renewed; zero for never.
	renew time.Time
}

// heldGrace is the interval of attempts to remove old content that containers mount as subPaths.
const heldGrace = 5 * time.Minute

// maxJitter is the upper bound of the random delay that spreads refreshes which are due at the same time. It keeps the
// time at which a CSI driver gets a renewed token at most 5 s after the token is due.
const maxJitter = 4 * time.Second

// repeatAfter is the shortest interval of refreshes for a driver that requires repeated calls (API:
// CSIDriverSpec.requiresRepublish): the kubelet's default for syncFrequency.
const repeatAfter = time.Minute

// repeat returns the time of the next refresh of a volume whose driver requires repeated calls.
func repeat() time.Time { return time.Now().Add(repeatAfter + rand.N(maxJitter)) }

// see records the versions of the inputs that the current content was made from.
func (s *state) see(now volumestate.Sight) {
	s.seen, s.renew = now, now.Renew()
	if !s.renew.IsZero() {
		s.renew = s.renew.Add(rand.N(maxJitter))
	}
}

// newRefresher returns a refresher without volumes.
func newRefresher(c refresherConfig) *refresher {
	return &refresher{conf: c, busy: map[*state]struct{}{}}
}

// Due returns a channel that receives a value when another Pass is due; it is nil if none is due.
func (k *refresher) Due() <-chan time.Time {
	if k.timer == nil {
		return nil
	}
	return k.timer.C
}

// Stop stops the timer behind Due.
func (k *refresher) Stop() {
	if k.timer != nil {
		k.timer.Stop()
		k.timer = nil
	}
}

// Follow replaces the set of mounted volumes. New ones are checked, because their inputs may have changed since
// they were mounted.
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
			switch {
			case e.Updated:
				s.tidy = time.Now().Add(atomicwriter.Grace)
			case e.Seen.Repeats():
				s.tidy = repeat()
			}
			k.busy[s] = struct{}{}
		}
		k.known[e] = s
		for _, in := range volumestate.Inputs(e.Pod, e.Spec) {
			k.made[in] = append(k.made[in], s)
		}
	}
	maps.DeleteFunc(k.busy, func(s *state, _ struct{}) bool { return k.known[s.Mounted] == nil })
}

// Changed schedules a check of each volume that is made from one of these objects; of all volumes for the zero object.
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

// Pass starts to refresh the volumes whose inputs have changed, without waiting. When a refresh ends, Wake is
// filled.
func (k *refresher) Pass(ctx context.Context) {
	k.Stop()
	now := time.Now()
	var next time.Time
	for s := range k.busy {
		if s.op != nil && !s.op.Ended() {
			continue // when its operation ends, Pass checks the volume again
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

// earliest returns the earlier of two times. The zero time means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// outdated checks the volume if a check is due. It returns the versions of the current inputs, and reports whether
// the volume has to be refreshed.
func (k *refresher) outdated(ctx context.Context, s *state, at time.Time) (now volumestate.Sight, begin bool) {
	has := func(t time.Time) bool { return !t.IsZero() && !at.Before(t) }
	tidy, again, renew := has(s.tidy), has(s.due) || s.noRoom && s.freed != k.conf.Freed(), has(s.renew)
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
	now = k.conf.Observe(ctx, s.Wanted, s.pod)
	switch {
	case tidy:
		return now, true
	case s.seen.Same(now), !now.Known():
		// An input that becomes readable later counts as a change.
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

// refresh starts a refresh of the volume. Changes after this moment are detected by Pass once the refresh has ended.
func (k *refresher) refresh(ctx context.Context, s *state, sight volumestate.Sight) {
	e := s.Mounted
	s.freed = k.conf.Freed()
	s.op = k.conf.Ops.Start(ctx, operations.Task{
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
			case sight.Repeats():
				s.tidy = repeat()
			}
			k.recordResult(s, sight, err)
			return err
		},
	})
	s.op.Notify(k.conf.Wake)
}

// recordResult records the result of a refresh, and reports a failure. If the message is the same as before, it
// isn't reported again.
func (k *refresher) recordResult(s *state, sight volumestate.Sight, err error) {
	if err == nil {
		s.see(sight)
		s.tried, s.reported, s.count, s.due, s.noRoom = volumestate.Sight{}, "", 0, time.Time{}, false
		return
	}
	s.tried, s.due, s.noRoom = sight, time.Time{}, atomicfile.DiskFails(err)
	if s.noRoom {
		k.conf.DiskFailed(err)
	}
	var awaits *volume.AwaitsError
	if !errors.As(err, &awaits) {
		s.count++
		s.due = time.Now().Add(k.conf.Ops.Backoff(s.count))
	}
	k.report(s, err)
}

// report records an event about an outdated volume, unless its message is that of the volume's last event.
func (k *refresher) report(s *state, err error) {
	message := fmt.Sprintf("%s; it keeps the content that it has", volumestate.Problem{Spec: s.Spec, Err: err})
	if s.reported != message {
		s.reported = message
		k.conf.RecordEvent(s.pod, pod.Event{Type: v1.EventTypeWarning, Reason: pod.ReasonFailedMount, Message: message})
	}
}
