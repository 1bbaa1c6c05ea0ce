package containergc

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Pods is the observed state of the container runtime.
type Pods interface {
	// All returns the runtime's state of every pod, including pods that are no longer desired.
	All() []*pod.Observed
}

// Keeper enforces the node's limit of ended containers: pod workers query it for the instances that exceed the
// limit. Its methods may be called concurrently, except Run, which may be called once.
type Keeper struct {
	wake.Debounce
	limits Limits
	pods   Pods
	look   func(types.UID)
	log    logr.Logger
	// chosen is Choice.Pods of Run's last pass; the map is replaced, never changed.
	chosen atomic.Pointer[map[types.UID][]string]
	// freeing is true while FreeNow runs: meanwhile FreeNow sets chosen instead of Run, and Wake also signals changed,
	// on which FreeNow waits.
	freeing atomic.Bool
	changed wake.Slot
}

// NewKeeper returns a keeper. look is called with each pod that has new excess instances, to requeue it; it mustn't
// block.
func NewKeeper(l Limits, pods Pods, look func(types.UID), log logr.Logger) *Keeper {
	return &Keeper{Debounce: wake.NewDebounce(every), limits: l, pods: pods, look: look, log: log,
		changed: wake.NewSlot()}
}

// Excess returns the sorted IDs of the pod's instances that exceed the node's limit, nil if there are none. It is
// the result of Run's last pass: some may have been removed since. The caller mustn't change it.
func (k *Keeper) Excess(uid types.UID) []string {
	chosen := k.chosen.Load()
	if chosen == nil {
		return nil
	}
	return (*chosen)[uid]
}

// Wake notifies the keeper that containers may have ended or disappeared.
func (k *Keeper) Wake() {
	k.Debounce.Wake()
	k.changed.Wake()
}

const (
	// freed is how long FreeNow waits for the next instance to disappear, freeing how long it waits in all.
	freed, freeing = 3 * time.Second, 30 * time.Second
)

// FreeNow asks the workers to remove all ended instances, because the node is short of disk space. It includes the
// newest instances of pods that have ended. It returns when no further instance disappears, and must not be called
// concurrently.
func (k *Keeper) FreeNow(ctx context.Context) error {
	k.freeing.Store(true)
	ended := k.ended()
	asked := map[types.UID][]string{}
	for id, uid := range ended {
		asked[uid] = append(asked[uid], id)
	}
	for _, ids := range asked {
		slices.Sort(ids)
	}
	k.setChosen(asked)
	defer func() {
		k.freeing.Store(false)
		k.setChosen(map[types.UID][]string{})
		k.Debounce.Wake()
	}()
	quiet, limit := time.NewTimer(freed), time.NewTimer(freeing)
	defer quiet.Stop()
	defer limit.Stop()
	for left := len(ended); left > 0; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-quiet.C:
			return nil
		case <-limit.C:
			return nil
		case <-k.changed:
		}
		now := k.ended()
		maps.DeleteFunc(now, func(id string, _ types.UID) bool { _, was := ended[id]; return !was })
		if len(now) < left {
			left = len(now)
			quiet.Reset(freed)
		}
	}
	return nil
}

// ended maps the IDs of all ended instances to their pods.
func (k *Keeper) ended() map[string]types.UID {
	all := map[string]types.UID{}
	for _, o := range k.pods.All() {
		for i := range o.Containers {
			if c := &o.Containers[i]; c.Ended() {
				all[c.ID] = o.UID
			}
		}
	}
	return all
}

// Run enforces the limit, if there is one, until ctx ends: it checks all pods at the start and after each Wake, at
// most once a minute. Callers that observe containers ending or disappearing have to call Wake. The error is nil.
func (k *Keeper) Run(ctx context.Context) error {
	if k.limits.Total < 0 {
		<-ctx.Done()
		return nil
	}
	logged := 0
	var ends map[string]time.Time
	for {
		began := time.Now()
		pods := k.pods.All()
		ends = k.ends(pods, began, ends)
		c := Choose(pods, k.limits, began, ends)
		if !k.freeing.Load() {
			k.setChosen(c.Pods)
		}
		if c.Over != logged {
			logged = c.Over
			k.log.V(2).Info("Containers that have ended and can't be removed: each is the newest of its kind, or too "+
				"young", "overLimit", c.Over, "limit", k.limits.Total)
		}
		if !k.Await(ctx, began, c.Next) {
			return nil
		}
	}
}

// ends returns the times at which the ended instances ended; nil if there is no MinAge. before is the result of the
// previous call: the time of an end is determined only once, so that a later change of the clock doesn't change the
// instance's age. If that time is in the future, because the clock was set back before the agent noticed the end, it is
// replaced by now.
func (k *Keeper) ends(pods []*pod.Observed, now time.Time, before map[string]time.Time) map[string]time.Time {
	if k.limits.MinAge <= 0 {
		return nil
	}
	ends := map[string]time.Time{}
	for _, o := range pods {
		for i := range o.Containers {
			c := &o.Containers[i]
			if !c.Ended() {
				continue
			}
			at, known := before[c.ID]
			if !known {
				at = pod.AnchoredPast(c.FinishedAt, now)
			}
			ends[c.ID] = at
		}
	}
	return ends
}

// setChosen stores the excess instances, by pod. It calls the function look for each pod with an instance that wasn't
// in excess before.
func (k *Keeper) setChosen(chosen map[types.UID][]string) {
	var before map[types.UID][]string
	if p := k.chosen.Swap(&chosen); p != nil {
		before = *p
	}
	for uid, ids := range chosen {
		old := before[uid]
		if slices.ContainsFunc(ids, func(id string) bool { _, known := slices.BinarySearch(old, id); return !known }) {
			k.look(uid)
		}
	}
}
