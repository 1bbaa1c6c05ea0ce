package lifecycle

import (
	"fmt"
	"slices"
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle/ending"
	"github.com/deckhand-node/deckhand/internal/lifecycle/member"
	"github.com/deckhand-node/deckhand/internal/lifecycle/plan"
	"github.com/deckhand-node/deckhand/internal/lifecycle/probing"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// doom is why one container of a living pod has to end.
type doom struct {
	why   string
	grace *int64 // seconds, instead of the pod's
	// renew says that another instance follows whatever the restart policy says.
	renew bool
}

// doomOf finds out whether a running container has to end.
func (d *decider) doomOf(m *member.Member) (doom, bool) {
	if !m.Runs() || !m.LongRunning() {
		return doom{}, false
	}
	if _, failed := d.mem.HookFailed[m.Current.ID]; failed {
		return doom{why: "FailedPostStartHook"}, true
	}
	if why, grace, failed := probing.Failed(m, d.in.Probes); failed {
		return doom{why: why, grace: grace}, true
	}
	if otherImage(m, m.Current) {
		return doom{why: fmt.Sprintf("Container %s definition changed, will be restarted", m.Spec.Name), renew: true}, true
	}
	if d.resizing.Restarts(m) {
		return doom{why: fmt.Sprintf("Container %s is restarted to resize it", m.Spec.Name), renew: true}, true
	}
	return doom{}, false
}

// pardon is for a container that need not end (any more): what was begun is carried
// through, as it may be half dead; what wasn't is forgotten.
func (d *decider) pardon(m *member.Member) {
	if !m.Runs() {
		return
	}
	id := m.Current.ID
	if k, begun := d.mem.Kills[id]; begun {
		d.plan.Because(plan.Wait{Container: m.Spec.Name, Text: fmt.Sprintf("is being stopped: %s; that is over, but the stop had begun", k.Why)})
		d.ender.Stop(m.Current, ending.Term{By: k.By, Gentle: k.Gentle, Why: k.Why})
	} else if slices.Contains(d.kept().Renew, id) {
		d.book.Change(func(k *pod.Kept) {
			k.Renew = slices.DeleteFunc(k.Renew, func(s string) bool { return s == id })
		})
	}
}

// otherImage reports whether an instance was made from another image than the
// spec asks for now.
func otherImage(m *member.Member, inst *pod.Container) bool {
	return inst.Image != "" && inst.Image != m.Spec.Image
}

// endDoomed ends the containers of a living pod that have to.
func (d *decider) endDoomed() {
	for i := range d.members {
		m := &d.members[i]
		why, ok := d.doomOf(m)
		if !ok {
			d.pardon(m)
			continue
		}
		if id := m.Current.ID; why.renew && !slices.Contains(d.kept().Renew, id) {
			d.book.Change(func(k *pod.Kept) { k.Renew = append(k.Renew, id) })
		}
		if why.renew && !d.durable() {
			continue // forgotten, it might never be followed by another
		}
		grace := d.ender.Grace()
		if why.grace != nil {
			grace = time.Duration(*why.grace) * time.Second
		}
		d.plan.Because(plan.Wait{Container: m.Spec.Name, Text: "is being stopped: " + why.why})
		d.ender.Stop(m.Current, ending.Term{By: d.in.Now.Add(grace), Gentle: grace > 0, Why: why.why, Told: why.why})
	}
}
