package agent

import (
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/deadgc"
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
