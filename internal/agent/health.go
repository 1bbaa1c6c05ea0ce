package agent

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/server"
	"github.com/deckhand-node/deckhand/internal/server/machineinfo"
)

// defaultRuntimeName prefixes container IDs until the runtime has told its name.
const defaultRuntimeName = "containerd"

// runtimeState is what is known of the runtime itself. It follows the lists that
// the observed state makes: they succeed or fail as the runtime comes and goes.
type runtimeState struct {
	conn *cri.Conn
	// listed gets a value when a list has succeeded and the version isn't known.
	listed chan struct{}

	mu            sync.Mutex
	name, version string
	can           *translate.Features
	ready         bool
	told          string
}

func newRuntimeState(conn *cri.Conn) *runtimeState {
	return &runtimeState{conn: conn, listed: make(chan struct{}, 1), name: defaultRuntimeName, told: "not connected yet"}
}

// run asks the runtime for its name and version each time it is new or back.
func (r *runtimeState) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.listed:
		}
		v, err := r.conn.Version(ctx)
		if err != nil {
			continue // the next list tells
		}
		st, err := r.conn.Status(ctx)
		if err != nil {
			continue
		}
		r.mu.Lock()
		r.name, r.version, r.can = v.RuntimeName, v.RuntimeVersion, translate.FeaturesOf(st)
		r.mu.Unlock()
	}
}

// relisted takes in what came of a list of everything the runtime has.
func (r *runtimeState) relisted(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ready = err == nil; !r.ready {
		// Another version may come back.
		r.version, r.told = "", err.Error()
		return
	}
	r.told = ""
	if r.version == "" {
		select {
		case r.listed <- struct{}{}:
		default:
		}
	}
}

// say sets what is told of a runtime that isn't ready.
func (r *runtimeState) say(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = what
}

// features are what the runtime can do; nil as long as it hasn't told.
func (r *runtimeState) features() *translate.Features {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.can
}

// now returns the runtime's name and version, whether it is ready, and why not.
func (r *runtimeState) now() (name, version string, ready bool, told string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.name, r.version, r.ready, r.told
}

// checks are what /healthz looks at: things that a restart of the agent might mend,
// or that keep it from its work.
func (a *Agent) checks() []server.Check {
	return []server.Check{
		{Name: "ping", Func: func(context.Context) error { return nil }},
		{Name: "syncloop", Func: a.checkLoop},
		{Name: "pleg", Func: func(context.Context) error { return a.observed.Healthy(time.Now()) }},
		{Name: "runtime", Func: a.checkRuntime},
	}
}

// leastStill is how long the loop may stand still however often it resyncs: a host may be busy.
const leastStill = 10 * time.Second

// checkLoop fails when the loop that starts and ends workers has stood still for
// two of its resync periods.
func (a *Agent) checkLoop(context.Context) error {
	beat, most := a.pool.Beat(), max(2*a.cfg.Kubelet.SyncFrequency.Duration, leastStill)
	if beat.IsZero() {
		_, _, _, told := a.runtime.now()
		return fmt.Errorf("it hasn't begun, the runtime's pods aren't known yet: %s", told)
	}
	if still := time.Since(beat); still > most {
		return fmt.Errorf("it has stood still for %s, longer than %s", still.Round(time.Second), most)
	}
	return nil
}

// checkRuntime asks the runtime whether it can run pods.
func (a *Agent) checkRuntime(ctx context.Context) error {
	st, err := a.conn.Status(ctx)
	if err != nil {
		return err
	}
	for _, c := range st.GetStatus().GetConditions() {
		if !c.Status && (c.Type == "RuntimeReady" || c.Type == "NetworkReady") {
			return fmt.Errorf("%s is false: %s: %s", c.Type, c.Reason, c.Message)
		}
	}
	return nil
}

// listeners are the addresses served over plain HTTP.
func (a *Agent) listeners() []server.Listener {
	health := server.Health(a.checks()...)
	var list []server.Listener
	if a.cfg.Healthz.Port() != 0 {
		list = append(list, server.Listener{Name: "healthz", Addr: a.cfg.Healthz, Setting: "healthzPort in the file of --config", Handler: health})
	}
	if a.cfg.ReadOnly.Port() != 0 {
		list = append(list, server.Listener{Name: "read-only", Addr: a.cfg.ReadOnly, Setting: "readOnlyPort in the file of --config",
			Handler: server.NewReadOnly(a.log.WithName("server"), server.Sources{
				Pods: a.status, Running: everyPod{a}, Machine: machineinfo.New("/"), Health: health, Metrics: a.metrics.Handler(), Pages: a.pages()})})
	}
	return list
}
