// Package nodeapi implements the kubelet's API, which a node serves to authorized clients over HTTPS.
package nodeapi

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/internal/server"
	"github.com/deckhand-node/deckhand/internal/server/secure"
)

// Config configures the API and provides its data.
type Config struct {
	server.Sources
	// Statuses has the pods with their current status; Observed has the state of pods in the runtime.
	Statuses *podstatus.Store
	Observed interface {
		Get(types.UID) *pod.Observed
	}
	// Synced reports whether the list of pods is complete.
	Synced  func() bool
	Logs    *logs.Reader
	Runtime Runtime
	// SetVerbosity changes the log verbosity, until the configuration is read again.
	SetVerbosity func(uint32) error
	// HostLogs is the host's log directory: /var/log.
	HostLogs string
	// Journalctl is the path of journalctl; empty for the one in PATH.
	Journalctl string
	// Checkpoints is the directory of container checkpoints. If it is empty, /checkpoint isn't served (feature gate
	// ContainerCheckpoint).
	Checkpoints string
	// Debugging, SystemLogs, SystemLogQuery, Profiling and DebugFlags are the fields enableDebuggingHandlers,
	// enableSystemLogHandler, enableSystemLogQuery, enableProfilingHandler and enableDebugFlagsHandler.
	Debugging, SystemLogs, SystemLogQuery, Profiling, DebugFlags bool
	Log                                                          logr.Logger
}

// Runtime runs commands in containers and prepares streams to them.
type Runtime interface {
	ExecSync(ctx context.Context, container string, command []string, timeout time.Duration) (cri.ExecResult, error)
	Exec(context.Context, *runtimeapi.ExecRequest) (url string, err error)
	Attach(context.Context, *runtimeapi.AttachRequest) (url string, err error)
	PortForward(context.Context, *runtimeapi.PortForwardRequest) (url string, err error)
	CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) error
}

type api struct {
	Config
	streams *http.Transport
	queries chan struct{}
}

// maxVerbosity is the maximum size of the body of a request that sets the log verbosity, in bytes.
const maxVerbosity = 64

// Error messages of disabled handlers.
const (
	noDebugging  = "Debug endpoints are disabled: set enableDebuggingHandlers"
	noSystemLogs = "The host's logs are disabled: set enableSystemLogHandler"
	noLogQuery   = "Queries for logs are disabled: set enableSystemLogQuery"
	noProfiling  = "Profiling is disabled: set enableProfilingHandler"
	noDebugFlags = "Changing flags is disabled: set enableDebugFlagsHandler"
)

// Routes returns the table of all paths of the API. The subresources that each path needs for authorization follow
// https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/.
func Routes(c Config) []secure.Route {
	a := &api{c, toRuntime(), make(chan struct{}, maxQueries)}
	pods := server.NewPodLists(c.Log, c.Pods, c.Running)
	var table []secure.Route
	add := func(off string, methods, paths, subresources string, h http.Handler, more ...func(*secure.Route)) {
		for path := range strings.FieldsSeq(paths) {
			r := secure.Route{Methods: strings.Fields(methods), Path: path, Subresources: strings.Fields(subresources),
				Off: off, Handler: h}
			for _, m := range more {
				m(&r)
			}
			table = append(table, r)
		}
	}
	handle := func(h func(http.ResponseWriter, *http.Request)) http.Handler { return http.HandlerFunc(h) }
	stream := func(when func(*http.Request) bool) func(*secure.Route) {
		return func(r *secure.Route) { r.Stream = when }
	}
	debugging := unless(c.Debugging, noDebugging)
	// own combines a handler's own setting with enableDebuggingHandlers: the handler needs both.
	own := func(on bool, off string) string { return cmp.Or(debugging, unless(on, off)) }
	systemLogs, profiling, debugFlags := own(c.SystemLogs, noSystemLogs), own(c.Profiling, noProfiling),
		own(c.DebugFlags, noDebugFlags)

	add("", "GET", "/healthz /healthz/", "healthz proxy", c.Health)
	add("", "GET", "/metrics", "metrics", c.Metrics)
	for path, h := range c.Stats { // the subresource is the first part of the path: stats or metrics
		subresource, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
		add("", "GET", path, subresource, h)
	}
	add("", "GET", "/pods /pods/{$}", "pods proxy", handle(pods.Pods))
	add("", "GET", "/configz", "configz proxy", c.Pages["/configz"])
	add("", "GET", "/flagz", "configz proxy", c.Pages["/flagz"])
	add("", "GET", "/statusz", "statusz", c.Pages["/statusz"])
	add(debugging, "GET", "/runningpods /runningpods/{$}", "pods proxy", handle(pods.Running))
	add(debugging, "GET", "/containerLogs/{namespace}/{pod}/{container}", "proxy", handle(a.containerLogs),
		stream(secure.Always))
	add(debugging, "POST", "/run/{namespace}/{pod}/{container} /run/{namespace}/{pod}/{uid}/{container}",
		"proxy", handle(a.run), stream(secure.Always))
	for _, s := range a.waysIn() {
		add(debugging, "GET POST", s.paths, "proxy", s.serve, stream(secure.Always))
	}
	if c.Checkpoints != "" {
		add("", "POST", "/checkpoint/{namespace}/{pod}/{container}", "checkpoint", handle(a.checkpoint),
			stream(secure.Always))
	}
	add(systemLogs, "GET", "/logs/{path...}", "log", handle(a.hostLogs), stream(secure.Always))
	add(profiling, "GET", "/debug/pprof/{$} /debug/pprof/{profile}", "proxy", handle(pprof.Index),
		stream(func(r *http.Request) bool { return r.URL.Query().Has("seconds") }))
	add(profiling, "GET", "/debug/pprof/cmdline", "proxy", handle(pprof.Cmdline))
	add(profiling, "GET", "/debug/pprof/symbol", "proxy", handle(pprof.Symbol))
	add(profiling, "GET", "/debug/pprof/profile", "proxy", handle(pprof.Profile), stream(secure.Always))
	add(profiling, "GET", "/debug/pprof/trace", "proxy", handle(pprof.Trace), stream(secure.Always))
	add(debugFlags, "PUT", "/debug/flags/v", "proxy", handle(a.verbosity), func(r *secure.Route) {
		r.Body = maxVerbosity
	})
	return table
}

func unless(on bool, off string) string {
	if on {
		return ""
	}
	return off
}

// find returns the pod in the request's path and the status of its container. It answers with an error if either
// doesn't exist.
func (a *api) find(w http.ResponseWriter, r *http.Request) (*v1.Pod, *v1.ContainerStatus) {
	namespace, name, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
	p := a.pod(namespace, name)
	if uid := r.PathValue("uid"); p != nil && uid != "" && uid != string(p.UID) {
		p = nil
	}
	if p == nil && !a.Synced() {
		http.Error(w, "this node's agent has just been started: it doesn't know all of its pods yet",
			http.StatusServiceUnavailable)
		return nil, nil
	}
	if p == nil {
		http.Error(w, fmt.Sprintf("pod %q not found in namespace %q on this node", name, namespace),
			http.StatusNotFound)
		return nil, nil
	}
	if container == "" {
		return p, nil
	}
	status := pod.StatusNamed(&p.Status, container)
	if status == nil {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q", container, name), http.StatusNotFound)
		return nil, nil
	}
	return p, status
}

// pod returns the pod of this name. If there are two, it prefers one that isn't being deleted.
func (a *api) pod(namespace, name string) *v1.Pod {
	var found *v1.Pod
	for _, e := range a.Statuses.List() {
		if e.Pod.Namespace == namespace && e.Pod.Name == name && (found == nil || found.DeletionTimestamp != nil) {
			found = e.Pod
		}
	}
	return found
}

// running returns the ID of the container's running instance. It reads the observed state of the runtime, which is
// newer than the status. It answers with an error if the container doesn't run.
func (a *api) running(w http.ResponseWriter, p *v1.Pod, container string) (id string, ok bool) {
	if o := a.Observed.Get(p.UID); o != nil {
		for i := range o.Containers {
			if c := &o.Containers[i]; c.Name == container && c.State == pod.ContainerRunning {
				return c.ID, true
			}
		}
	}
	http.Error(w, fmt.Sprintf("container not found (%q): it doesn't run", container), http.StatusNotFound)
	return "", false
}

// run runs a command in a container and answers with its output.
func (a *api) run(w http.ResponseWriter, r *http.Request) {
	p, status := a.find(w, r)
	if status == nil {
		return
	}
	command := strings.Fields(r.URL.Query().Get("cmd"))
	if len(command) == 0 {
		http.Error(w, "the parameter cmd has no command", http.StatusBadRequest)
		return
	}
	id, ok := a.running(w, p, status.Name)
	if !ok {
		return
	}
	a.audit(r, "run", p, status.Name)
	result, err := a.Runtime.ExecSync(r.Context(), id, command, 0)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if result.ExitCode != 0 {
		w.WriteHeader(http.StatusInternalServerError)
	}
	_, _ = w.Write(append(result.Stdout, result.Stderr...)) // an error means that the client is gone
}

// verbosity sets the log verbosity.
func (a *api) verbosity(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, "read the verbosity: "+err.Error(), http.StatusBadRequest)
		return
	}
	level, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 31)
	if err == nil {
		err = a.SetVerbosity(uint32(level))
	}
	if err != nil {
		http.Error(w, "set the verbosity: "+err.Error(), http.StatusBadRequest)
		return
	}
	a.Log.Info("A user has changed how much is logged", "user", secure.UserOf(r.Context()), "limit", level)
	_, _ = fmt.Fprintf(w, "successfully set klog.logging.verbosity to %d", level) // the client may be gone
}
