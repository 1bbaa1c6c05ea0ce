package agent

import (
	"os"
	"path/filepath"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/deadgc"
	"github.com/deckhand-node/deckhand/internal/pathelement"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// remains looks after what containers that have ended leave: on the node as a whole,
// beyond what each pod's worker does.
type remains struct {
	keeper *deadgc.Keeper
	logs   *deadgc.LogSweep
}

func (a *Agent) newRemains() *remains {
	d := a.cfg.DeadContainers
	return &remains{
		keeper: deadgc.NewKeeper(deadgc.Limits{Total: d.Total, MinAge: d.MinAge}, everyPod{a}, func(uid podUID) { a.pool.Wake(uid) }, a.log.WithName("deadgc")),
		logs: deadgc.NewLogSweep(deadgc.LogsConfig{Logs: a.logDirs, Pods: everyPod{a}, Events: nodeEvents{a}, Meter: a.metrics.Garbage, Log: a.log.WithName("deadgc"),
			// In the kubelet's place nobody else keeps logs there.
			Sole: a.cfg.RootDir == config.DefaultRootDir}),
	}
}

// changed says that something of a pod has come, changed or gone.
func (r *remains) changed() {
	r.keeper.Wake()
	r.logs.Wake()
}

// everyPod knows the pods of this node, wanted or not.
type everyPod struct{ *Agent }

// All lists what the runtime has of them.
func (e everyPod) All() []*pod.Observed { return e.allObserved() }

// Settled reports whether it is known what runs here and what should.
func (e everyPod) Settled() bool {
	select {
	case <-e.observed.Synced():
		return e.merger.Current().Synced
	default:
		return false
	}
}

// Knows reports whether anything of the pod is left but its logs.
func (e everyPod) Knows(uid podUID) bool {
	if e.merger.Current().Get(uid) != nil || e.observed.Get(uid) != nil || e.status.Get(uid) != nil {
		return true
	}
	if pathelement.Check("pod UID", string(uid)) != nil {
		return true // whatever that is, it isn't a pod's
	}
	_, err := os.Lstat(filepath.Join(e.cfg.RootDir, "pods", string(uid)))
	return err == nil
}
