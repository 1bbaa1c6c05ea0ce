package agent

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/buildinfo"
	"github.com/deckhand-node/deckhand/internal/config/paths"
	"github.com/deckhand-node/deckhand/internal/server"
	"github.com/deckhand-node/deckhand/internal/server/zpages"
)

// component is what the agent calls itself where the kubelet's name is expected.
const component = "kubelet"

// pages are what the agent tells of itself, by path: on the read-only port and the local socket.
func (a *Agent) pages() map[string]http.Handler {
	list := make([]zpages.Flag, len(a.cfg.Flags))
	for i, f := range a.cfg.Flags {
		list[i] = zpages.Flag(f)
	}
	served := append(server.Paths(), "/configz", "/flagz", "/statusz")
	slices.Sort(served)
	return map[string]http.Handler{
		"/configz": zpages.Configz(func() any { return paths.Masked(&a.reloader.Current().Kubelet) }),
		"/flagz":   zpages.Flagz(component, list),
		"/statusz": zpages.Statusz(func() zpages.Status {
			return zpages.Status{Name: component, Started: a.since, Binary: strings.TrimPrefix(buildinfo.Kubernetes, "v"), Build: version(), Paths: served}
		}, time.Now),
	}
}
