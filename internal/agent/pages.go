package agent

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/config/paths"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/server"
)

// component is what the agent calls itself where the kubelet's name is expected.
const component = "kubelet"

// localPages are those of the local socket: what the agent shows of itself, and what pods use.
func localPages(list ...map[string]http.Handler) map[string]http.Handler {
	all := map[string]http.Handler{}
	for _, l := range list {
		maps.Copy(all, l)
	}
	return all
}

// pages are what the agent shows of itself, by path: on the read-only port and the local socket.
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
