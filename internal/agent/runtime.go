package agent

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/engine"
	"github.com/deckhand-node/deckhand/internal/runtime/health"
	runtimelogs "github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/runtime/observed"
)

// runtimeParts are the node, its container runtime, and the observed state of pods.
type runtimeParts struct {
	engine  engine.Engine
	imports *image.Imports
	conn    *cri.Conn
	state   *health.State
	host    *node
	logs    *runtimelogs.Reader
	logDirs *layout.Dirs
	seen    *observed.Store
}

func newRuntime(b *foundation) (*runtimeParts, error) {
	k, log := b.kubelet(), b.log
	r := &runtimeParts{imports: image.NewImports(),
		logs:    runtimelogs.New(k.PodLogsDir, b.files, log.WithName("logs")),
		logDirs: layout.NewDirs(layout.DirsConfig{PodLogsDir: k.PodLogsDir, LinksDir: b.cfg.ContainerLogLinksDir})}
	var err error
	if r.engine, err = engine.New(b.by.engines, b.cfg, engine.Hooks{
		Files: b.files, StopsOnly: b.o.StopAll, Imported: r.imports.Add, Move: cgroup.Move,
		NetworkRestored: func(message string) {
			b.node.NodeEvent(v1.EventTypeWarning, pod.ReasonPodNetworkRestored, message)
		}}, log.WithName("runtime")); err != nil {
		return nil, err
	}
	if r.conn, err = cri.New(cri.Options{Endpoint: r.engine.Endpoint(), ImageEndpoint: k.ImageServiceEndpoint,
		Timeout: k.RuntimeRequestTimeout.Duration, Observer: b.meter.Runtime,
		Tracer: b.traces.provider()}); err != nil {
		return nil, err
	}
	r.state = health.New(r.conn, b.statusPoll(), log.WithName("runtime"))
	if r.host, err = newNode(b.cfg, b.dirs.Pods(), r.engine.Traits().StateDir, log); err != nil {
		return nil, err
	}
	messages := runtimelogs.NewMessageReader(b.dirs.Pods(), r.logs, log.WithName("termination"))
	r.seen = observed.New(r.conn, observed.Options{Wake: b.wakes.podChanged, Boot: r.host.fixed.Boot,
		Observer: listObserver{b.meter.PLEG, r.state, b.wakes.runtimeAnswers}, Message: messages.Message,
		Log: log.WithName("observed")})
	return r, nil
}

// admission returns the current node facts that pod admission depends on.
func (r *runtimeParts) admission() *admission.Node { return r.host.admission(r.state.Features()) }

// runs reports whether the runtime has a sandbox or container of a pod; lives reports whether one of these may be
// running.
func (r *runtimeParts) runs(uid types.UID) bool  { return !r.seen.Get(uid).Empty() }
func (r *runtimeParts) lives(uid types.UID) bool { return r.seen.Get(uid).Live() }

// containerLives reports whether an instance of the pod's container may be running.
func (r *runtimeParts) containerLives(uid types.UID, name string) bool {
	c := r.seen.Get(uid).Newest(name)
	return c != nil && !c.Ended()
}

// alonePoll is the period of runtime status requests outside a cluster, where only deckhand's commands show the
// node's conditions.
const alonePoll = 20 * time.Second

// statusPoll returns the period of runtime status requests.
func (b *foundation) statusPoll() time.Duration {
	if !b.joins() {
		return alonePoll
	}
	return b.cfg.Kubelet.NodeStatusUpdateFrequency.Duration
}
