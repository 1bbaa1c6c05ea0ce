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

// dialLimit is how long a connection to the runtime, which is on this machine, may take to come about.
const dialLimit = 10 * time.Second

// toRuntime makes connections to the runtime's stream server, wherever it says that is: on this machine, and nowhere
// else.
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
		// A runtime that never answers holds up neither a client that leaves nor the end of the agent.
		context.AfterFunc(ctx, func() { c.Close() })
		return c, nil
	}}
}

// streamOptions are those that a request for streams has in its URL.
type streamOptions struct{ stdin, stdout, stderr, tty bool }

func parseStreams(q url.Values) (streamOptions, error) {
	on := func(name string) bool { return q.Get(name) == "1" || q.Get(name) == "true" }
	o := streamOptions{stdin: on(v1.ExecStdinParam), stdout: on(v1.ExecStdoutParam), stderr: on(v1.ExecStderrParam),
		tty: on(v1.ExecTTYParam)}
	if o.tty {
		o.stderr = false // a terminal has one output
	}
	if !o.stdin && !o.stdout && !o.stderr {
		return o, errors.New("you must specify at least 1 of stdin, stdout, stderr")
	}
	return o, nil
}

// A way into a pod is by streams.
type way struct {
	// paths are those of the kubelet's API.
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

// Sessions are those of the routes that reach into pods by streams, for the commands on this machine: the local API has
// let in who asks.
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

// exec streams to and from a command that is run in a container.
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

// attach streams to and from the main process of a container.
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

// portForward carries connections to ports of a pod.
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

// sandbox is the ID of the one that a pod has; empty if it has none that is ready.
func (a *api) sandbox(uid types.UID) string {
	if o := a.Observed.Get(uid); o != nil && len(o.Sandboxes) > 0 && o.Sandboxes[0].State == pod.SandboxReady {
		return o.Sandboxes[0].ID
	}
	return ""
}

// whileReady is a context that ends when the pod has that sandbox no more: nobody tells a client of connections to it.
// The caller ends it.
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

// parsePorts reads the ports that a client of WebSockets has in the URL; others name them with each connection.
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

// prepared is where the runtime has the streams that it was asked for. It answers with an error if there are none.
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

// pass connects the client with the runtime's streams, as long as both want it and the agent runs. What is spoken on
// them is between these two.
func (a *api) pass(w http.ResponseWriter, r *http.Request, at *url.URL) {
	h := proxy.NewUpgradeAwareHandler(at, a.streams, false, true, refusal{})
	h.UseLocationHost = true
	// The errors that it would log are the client's.
	h.ServeHTTP(w, r.WithContext(klog.NewContext(r.Context(), logr.Discard())))
}

// refusal tells a client why there are no streams.
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

// audit records who reaches into a container as that begins; what came of it is recorded at its end, by secure, and an
// agent that is killed doesn't see that. What for isn't told: it may be secret.
func (a *api) audit(r *http.Request, action string, p *v1.Pod, container string) {
	a.Log.Info("A user reaches into a pod", "user", secure.UserOf(r.Context()), "action", action, "pod", klog.KObj(p),
		"containerName", container, "address", r.RemoteAddr)
}
