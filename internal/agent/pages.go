package agent

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/config/paths"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/resources/stats"
	"github.com/deckhand-node/deckhand/internal/runtime/health"
	"github.com/deckhand-node/deckhand/internal/runtime/observed"
	"github.com/deckhand-node/deckhand/internal/server"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// component is the agent's name in pages whose clients expect the kubelet.
const component = "kubelet"

// localPages merges the pages of the local socket: those about the agent, and those of statistics.
func localPages(list ...map[string]http.Handler) map[string]http.Handler {
	all := map[string]http.Handler{}
	for _, l := range list {
		maps.Copy(all, l)
	}
	return all
}

// pages returns the pages about the agent by path. The read-only port and the local socket serve them.
func pages(shown []flags.Shown, reloader *config.Reloader, began time.Time) map[string]http.Handler {
	list := make([]server.Flag, len(shown))
	for i, f := range shown {
		list[i] = server.Flag(f)
	}
	served := append(server.Paths(), "/configz", "/flagz", "/statusz")
	slices.Sort(served)
	return map[string]http.Handler{
		"/configz": server.Configz(func() any { return paths.Masked(&reloader.Current().Kubelet) }),
		"/flagz":   server.Flagz(component, list),
		"/statusz": server.Statusz(func() server.AgentStatus {
			return server.AgentStatus{Name: component, Started: began,
				Binary: strings.TrimPrefix(buildinfo.Kubernetes, "v"), Build: version(), Paths: served}
		}, time.Now),
	}
}

// statsPages returns the handlers of statistics by path.
func statsPages(s *stats.Sampler, machine *server.MachineReader, meter *metrics.Metrics,
	log logr.Logger) map[string]http.Handler {
	return map[string]http.Handler{
		"/stats/summary": server.Summary(log.WithName("server"), s),
		"/metrics/cadvisor": metrics.HandlerOf(s.ContainerMetrics(func() (stats.Machine, error) {
			i, err := machine.Info()
			if err != nil {
				return stats.Machine{}, err
			}
			return stats.Machine{Cores: i.NumCores, PhysicalCores: i.NumPhysicalCores, Sockets: i.NumSockets,
				Memory: i.MemoryCapacity, Swap: i.SwapCapacity,
				BootID: i.BootID, MachineID: i.MachineID, SystemUUID: i.SystemUUID}, nil
		})),
		"/metrics/resource": metrics.HandlerOf(s.ResourceMetrics()),
		"/metrics/probes":   meter.ProbesHandler(),
		"/metrics/slis":     meter.Checks.Handler(),
	}
}

// checks returns the checks of /healthz. They detect failures that a restart of the agent might fix, and failures
// that prevent the agent from working.
func checks(pool *worker.Pool, seen *observed.Store, runtime *health.State, meter *metrics.Checks) []server.Check {
	list := []server.Check{
		{Name: "ping", Func: func(context.Context) error { return nil }},
		{Name: "syncloop", Func: func(context.Context) error {
			if pool.Heartbeat().IsZero() {
				return fmt.Errorf("waiting for container runtime: its pods aren't known yet: %s",
					runtime.Info().Message)
			}
			return pool.Healthy(time.Now())
		}},
		{Name: "pleg", Func: func(context.Context) error { return seen.Healthy(time.Now()) }},
		{Name: "runtime", Func: runtime.Check},
	}
	for i := range list {
		name, check := list[i].Name, list[i].Func
		list[i].Func = func(ctx context.Context) error {
			err := check(ctx)
			meter.Checked(name, err)
			return err
		}
	}
	return list
}
