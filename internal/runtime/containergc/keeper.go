package containergc

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Pods knows what the runtime has of pods.
type Pods interface {
	// All lists what the runtime has of every pod, wanted or not.
	All() []*pod.Observed
}

// Keeper keeps to the limit of the whole node: each pod's worker asks it which ended
// instances exceed the limit. Its methods may be called concurrently, but Run once only.
type Keeper struct {
	wake.Debounce
	limits Limits
	pods   Pods
	look   func(types.UID)
	log    logr.Logger
	// chosen is Choice.Pods as of Run's last look; never changed, but replaced.
	chosen atomic.Pointer[map[types.UID][]string]
}

// NewKeeper makes a keeper. look has a pod looked at again, of which more
// instances have become excess; it mustn't block.
func NewKeeper(l Limits, pods Pods, look func(types.UID), log logr.Logger) *Keeper {
	return &Keeper{Debounce: wake.NewDebounce(every), limits: l, pods: pods, look: look, log: log}
}

// Excess lists the IDs of the pod's instances that exceed the node's limit, sorted; nil for
// none. It is as of Run's last look: some may have been removed since. The
// caller mustn't change it.
func (k *Keeper) Excess(uid types.UID) []string {
	chosen := k.chosen.Load()
	if chosen == nil {
		return nil
	}
	return (*chosen)[uid]
}

// Run keeps to the limit, if there is one, until ctx ends: it looks at all pods at once and after
// a Wake, which whoever sees containers end or go has to call, but once a minute at
// most. The error is nil.
func (k *Keeper) Run(ctx context.Context) error {
	if k.limits.Total < 0 {
		<-ctx.Done()
		return nil
	}
	logged := 0
	for {
		began := time.Now()
		c := Choose(k.pods.All(), k.limits, began)
		k.take(c.Pods)
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

// take stores the choice and has the pods looked at that have more excess instances by it.
func (k *Keeper) take(chosen map[types.UID][]string) {
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
