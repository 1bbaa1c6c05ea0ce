// Package probe runs the startup, liveness and readiness probes of containers
// and derives their results by their thresholds. The core (package lifecycle) says
// which probes should run and what follows from their results: this package never
// stops or starts a container.
//
// One goroutine keeps the deadlines of all probes in a heap, behind one timer. A
// few workers, started when there is work and stopped when there isn't, carry out
// single tries. So a probe costs a few hundred bytes, no goroutine and no ticker,
// and a pod without probes costs nothing.
//
// The meaning of a probe's fields is that of the comments on v1.Probe.
package probe

import (
	"context"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// Handler carries out single tries. It is called from several goroutines, but
// never twice at once for one probe of one container instance.
type Handler interface {
	// Probe tries once. It returns after p.TimeoutSeconds or little more, and soon after ctx has
	// ended; what it returns then is thrown away.
	Probe(ctx context.Context, t handler.Target, p *v1.Probe) handler.Outcome
}

// Recorder takes in events. It may be called concurrently.
type Recorder interface {
	Event(p *v1.Pod, e pod.Event)
}

// Meter counts tries. It is called under the manager's lock, so that Dropped is
// always the last: it has to be quick, and must not call the manager.
type Meter interface {
	// Tried is called after each try of a probe that is still wanted.
	Tried(p *v1.Pod, container string, kind pod.ProbeKind, state handler.State, took time.Duration)
	// Dropped is called for each probe of a pod that is forgotten: it won't be
	// tried again, and what was counted for it can go.
	Dropped(p *v1.Pod, container string, kind pod.ProbeKind)
}

// Options is what a Manager is built from.
type Options struct {
	Handler  Handler
	Recorder Recorder
	Meter    Meter
	// Wake is called at once when a pod's Results have changed. It must not block.
	Wake func(types.UID)
	Log  logr.Logger
	// MaxParallel bounds the http, tcp and grpc tries that begin or are under way for up
	// to 2 s at once. Those that hang for longer don't count, so that others can begin; a pod
	// may have a quarter of the number under way, and the node four times it beside one
	// for each pod. 0 means 512: they mostly wait, and cost a goroutine each.
	MaxParallel int
	// MaxExec bounds the exec tries in the same way. They have a bound of their own, as
	// each costs the node a process start of tens of milliseconds. 0 means 2 for each
	// CPU, which is what can start at once at full speed, and 12 for commands that
	// only wait.
	MaxExec int
	// Spread picks a delay in [0, period) for the first try in a container that ran
	// before the manager was made. nil means at random.
	Spread func(period time.Duration) time.Duration
}

func (o Options) withDefaults() Options {
	if o.MaxParallel <= 0 {
		o.MaxParallel = 512
	}
	if o.MaxExec <= 0 {
		o.MaxExec = 2*runtime.NumCPU() + 12
	}
	if o.Spread == nil {
		o.Spread = rand.N[time.Duration]
	}
	return o
}

// specOf returns the container's probe of this kind, or nil.
func specOf(c *v1.Container, kind pod.ProbeKind) *v1.Probe {
	switch kind {
	case pod.ProbeStartup:
		return c.StartupProbe
	case pod.ProbeLiveness:
		return c.LivenessProbe
	case pod.ProbeReadiness:
		return c.ReadinessProbe
	default:
		return nil
	}
}
