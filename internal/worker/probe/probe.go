// Package probe runs the startup, liveness and readiness probes of containers and derives their results by their
// thresholds. The core (package lifecycle) decides which probes run and acts on their results: this package never
// stops or starts a container.
//
// One goroutine keeps the deadlines of all probes in a heap, with one timer. A few workers, started when there is
// work and stopped when there isn't, carry out single tries. So a probe costs a few hundred bytes, no goroutine and
// no ticker, and a pod without probes costs nothing.
//
// The fields of a probe have the meaning of the comments on v1.Probe.
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

// Handler carries out single tries. It is called from several goroutines, but never concurrently for the same probe
// of a container instance.
type Handler interface {
	// Probe tries once. It returns after p.TimeoutSeconds or little more. After ctx is done, it returns soon and its
	// outcome is ignored.
	Probe(ctx context.Context, t handler.Target, p *v1.Probe) handler.Outcome
}

// Recorder records events. It is called concurrently.
type Recorder interface {
	Event(p *v1.Pod, e pod.Event)
}

// Meter counts tries. The manager calls it with its lock held, so that Dropped is always the last call for a probe.
// Therefore it has to return quickly, and must not call the manager.
type Meter interface {
	// Tried is called after each try of a probe that is still requested.
	Tried(p *v1.Pod, container string, kind pod.ProbeKind, state handler.State, took time.Duration)
	// Dropped is called for each probe of a forgotten pod: it won't be tried again, and its metrics can be removed.
	Dropped(p *v1.Pod, container string, kind pod.ProbeKind)
}

// Options is the configuration of a Manager.
type Options struct {
	Handler  Handler
	Recorder Recorder
	Meter    Meter
	// Wake is called at once when a pod's Results have changed. It must not block.
	Wake func(types.UID)
	Log  logr.Logger
	// MaxParallel limits the http, tcp and grpc tries that are in their first 2 s. Tries that hang for longer don't
	// count if other tries wait. The total number of tries under way, including hanging ones, is also limited: for a
	// pod to a quarter of MaxParallel, and for the node to four times MaxParallel in addition to one per pod. 0 means
	// 512: such tries mostly wait, and cost a goroutine each.
	MaxParallel int
	// MaxExec limits the exec tries in the same way. They have their own limit because each starts a process, which
	// costs the node tens of milliseconds. 0 means 2 per CPU, the number that can start at full speed, and 12 more for
	// commands that only wait.
	MaxExec int
	// Spread returns a delay in [0, period) for the first try in a container that ran before the manager was created.
	// nil means a random delay.
	Spread func(period time.Duration) time.Duration
	// ClockSteps returns the latest steps of the machine's clock, oldest first: the runtime's times may be from before
	// them. nil means that there are none.
	ClockSteps func() []pod.ClockStep
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
	if o.ClockSteps == nil {
		o.ClockSteps = func() []pod.ClockStep { return nil }
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
