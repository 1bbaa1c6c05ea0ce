package nodeapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/secure"
)

// dialLimit is the timeout of a connection to the runtime, which is on this machine.
const dialLimit = 10 * time.Second

// toRuntime returns a transport to the runtime's stream server. It connects only to loopback addresses, whatever URL
// the runtime returns.
func toRuntime() *http.Transport {
	dialer := net.Dialer{Timeout: dialLimit, Control: func(_, address string, _ syscall.RawConn) error {
		if to, err := netip.ParseAddrPort(address); err != nil || !to.Addr().Unmap().IsLoopback() {
			return fmt.Errorf("the container runtime has its streams at %s: only those at a loopback address are "+
				"asked for", address)
		}
		return nil
	}}
	return &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dialer.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		// The connection is closed when ctx ends, so that a runtime that hangs doesn't block a client that leaves or
		// the agent's shutdown.
		context.AfterFunc(ctx, func() { c.Close() })
		return c, nil
	}}
}

// streamOptions are the stream parameters in a request's URL.
type streamOptions struct{ stdin, stdout, stderr, tty bool }

func parseStreams(q url.Values) (streamOptions, error) {
	on := func(name string) bool { return q.Get(name) == "1" || q.Get(name) == "true" }
	o := streamOptions{stdin: on(v1.ExecStdinParam), stdout: on(v1.ExecStdoutParam), stderr: on(v1.ExecStderrParam),
		tty: on(v1.ExecTTYParam)}
	if o.tty {
		o.stderr = false // a terminal has only one output
	}
	if !o.stdin && !o.stdout && !o.stderr {
		return o, errors.New("you must specify at least 1 of stdin, stdout, stderr")
	}
	return o, nil
}

// way is a handler that opens streams into a pod.
type way struct {
	// paths are the patterns of its paths in the kubelet's API, separated by spaces.
	paths string
	serve http.HandlerFunc
}

func (a *api) waysIn() []way {
	return []way{
		{"/exec/{namespace}/{pod}/{container} /exec/{namespace}/{pod}/{uid}/{container}", a.exec},
		{"/attach/{namespace}/{pod}/{container} /attach/{namespace}/{pod}/{uid}/{container}", a.attach},
		{"/portForward/{namespace}/{pod} /portForward/{namespace}/{pod}/{uid}", a.portForward},
	}
}

// Sessions serves exec, attach and port-forward for commands on this machine. The local API has authenticated the
// client.
func Sessions(c Config) http.Handler {
	a := &api{Config: c, streams: toRuntime()}
	var table []secure.Route
	for _, s := range a.waysIn() {
		for path := range strings.FieldsSeq(s.paths) {
			table = append(table, secure.Route{Methods: []string{http.MethodPost}, Path: path, Stream: secure.Always,
				Handler: s.serve})
		}
	}
	return secure.Admitted(table, local.UserOf, c.Log)
}

// exec runs a command in a container, with streams to and from it.
func (a *api) exec(w http.ResponseWriter, r *http.Request) {
	command := r.URL.Query()[v1.ExecCommandParam]
	if len(command) == 0 {
		http.Error(w, "you must specify a command", http.StatusBadRequest)
		return
	}
	a.toContainer(w, r, "exec", func(id string, o streamOptions) (string, error) {
		return a.Runtime.Exec(r.Context(),
			&runtimeapi.ExecRequest{ContainerId: id, Cmd: command, Stdin: o.stdin, Stdout: o.stdout, Stderr: o.stderr,
				Tty: o.tty})
	})
}

// attach serves streams to and from the main process of a container.
func (a *api) attach(w http.ResponseWriter, r *http.Request) {
	a.toContainer(w, r, "attach", func(id string, o streamOptions) (string, error) {
		return a.Runtime.Attach(r.Context(),
			&runtimeapi.AttachRequest{ContainerId: id, Stdin: o.stdin, Stdout: o.stdout, Stderr: o.stderr, Tty: o.tty})
	})
}

func (a *api) toContainer(w http.ResponseWriter, r *http.Request, action string,
	prepare func(id string, o streamOptions) (string, error)) {
	options, err := parseStreams(r.URL.Query())
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p, status := a.find(w, r)
	if status == nil {
		return
	}
	if id, ok := a.running(w, p, status.Name); ok {
		a.audit(r, action, p, status.Name)
		at := a.prepared(w, func() (string, error) { return prepare(id, options) })
		switch {
		case at == nil:
		case offers(r, remotecommand.StreamProtocolV5Name):
			a.translate(w, r, at, options)
		default:
			a.pass(w, r, at)
		}
	}
}

// portForward forwards connections to ports of a pod.
func (a *api) portForward(w http.ResponseWriter, r *http.Request) {
	ports, err := parsePorts(r.URL.Query()["port"])
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p, _ := a.find(w, r)
	if p == nil {
		return
	}
	sandbox := a.sandbox(p.UID)
	if sandbox == "" {
		http.Error(w, fmt.Sprintf("pod %q isn't running: it has no sandbox", p.Name), http.StatusNotFound)
		return
	}
	a.audit(r, "portForward", p, "")
	ctx, end := a.whileReady(r.Context(), p.UID, sandbox)
	defer end()
	r = r.WithContext(ctx)
	at := a.prepared(w, func() (string, error) {
		return a.Runtime.PortForward(r.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: sandbox, Port: ports})
	})
	switch {
	case at == nil:
	case offers(r, tunnelProtocol):
		a.tunnel(w, r, at)
	default:
		a.pass(w, r, at)
	}
}

// sandbox returns the ID of a pod's sandbox, or "" if it isn't ready.
func (a *api) sandbox(uid types.UID) string {
	if o := a.Observed.Get(uid); o != nil && len(o.Sandboxes) > 0 && o.Sandboxes[0].State == pod.SandboxReady {
		return o.Sandboxes[0].ID
	}
	return ""
}

// whileReady returns a context that ends when this sandbox of the pod is no longer ready: the connections of a
// port-forward don't end with the sandbox by themselves. The caller has to call end.
func (a *api) whileReady(ctx context.Context, uid types.UID, sandbox string) (ready context.Context, end func()) {
	changed, unwatch := a.Statuses.Watch()
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() {
		defer cancel()
		for a.sandbox(uid) == sandbox {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
		}
	})
	return ctx, func() {
		cancel()
		watching.Wait()
		unwatch()
	}
}

// parsePorts parses the ports in a URL, as WebSocket clients send them. Other clients send a port with each
// connection.
func parsePorts(texts []string) ([]int32, error) {
	var ports []int32
	for _, text := range texts {
		port, err := strconv.ParseUint(text, 10, 16)
		if err != nil || port == 0 {
			return nil, fmt.Errorf("port %q is none: it has to be from 1 to 65535", text)
		}
		ports = append(ports, int32(port))
	}
	return ports, nil
}

// prepared calls the function prepare, which requests streams from the runtime, and returns the URL of those streams.
// If that fails it answers the client with an error and returns nil.
func (a *api) prepared(w http.ResponseWriter, prepare func() (string, error)) *url.URL {
	at, err := prepare()
	if cri.IsUnimplemented(err) {
		http.Error(w, "the container runtime can't do that: "+err.Error(), http.StatusNotImplemented)
		return nil
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return nil
	}
	location, err := url.Parse(at)
	if err != nil || location.Scheme != "http" && location.Scheme != "https" {
		a.Log.Error(err, "The container runtime has its streams at an address that isn't HTTP's", "url", at)
		http.Error(w, "the container runtime has its streams at an address that isn't HTTP's",
			http.StatusInternalServerError)
		return nil
	}
	return location
}

// pass proxies the client's connection to the runtime's streams until either end closes it or the agent stops. It
// doesn't interpret the protocol.
func (a *api) pass(w http.ResponseWriter, r *http.Request, at *url.URL) {
	h := proxy.NewUpgradeAwareHandler(at, a.streams, false, true, refusal{})
	h.UseLocationHost = true
	// The proxy would log errors that the client causes.
	h.ServeHTTP(w, r.WithContext(klog.NewContext(r.Context(), logr.Discard())))
}

// refusal answers a client with the error of connecting to the runtime's streams.
type refusal struct{}

// Error implements proxy.ErrorResponder.
func (refusal) Error(w http.ResponseWriter, _ *http.Request, err error) {
	code := http.StatusInternalServerError
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code = int(status.Status().Code)
	}
	http.Error(w, err.Error(), code)
}

// audit logs the user when an action in a pod begins. Package secure logs only the end of the action, and can't do
// that if the agent is killed before. The command isn't logged: it may contain secrets.
func (a *api) audit(r *http.Request, action string, p *v1.Pod, container string) {
	a.Log.Info("A user reaches into a pod", "user", secure.UserOf(r.Context()), "action", action, "pod", klog.KObj(p),
		"containerName", container, "address", r.RemoteAddr)
}
