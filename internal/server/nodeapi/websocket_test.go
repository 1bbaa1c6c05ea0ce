package nodeapi_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/gorilla/websocket"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	clientexec "k8s.io/client-go/util/exec"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	cristreaming "k8s.io/cri-streaming/pkg/streaming"
	remotecommandserver "k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"
	utilexec "k8s.io/utils/exec"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/nodeapi"
)

// commands are what a runtime runs in containers. It is told when one that would go on has ended.
type commands struct{ ended chan struct{} }

func (c commands) Exec(ctx context.Context, _ string, command []string, in io.Reader, out, errs io.WriteCloser, _ bool, resize <-chan remotecommandserver.TerminalSize) error {
	switch command[0] {
	case "cat":
		_, err := io.Copy(out, in)
		return err
	case "sum": // needs to know where its input ends
		sum := sha256.New()
		if _, err := io.Copy(sum, in); err != nil {
			return err
		}
		_, err := fmt.Fprintf(out, "%x", sum.Sum(nil))
		return err
	case "fail":
		fmt.Fprint(out, "out")
		fmt.Fprint(errs, "err")
		return utilexec.CodeExitError{Err: errors.New("exit"), Code: 7}
	case "broken":
		return errors.New("no such program")
	case "size":
		for size := range resize {
			if _, err := fmt.Fprintf(out, "%dx%d\n", size.Width, size.Height); err != nil || size.Width == 120 {
				return err
			}
		}
		return errors.New("no size came")
	case "deaf": // reads nothing of its input
		_, err := fmt.Fprint(out, "deaf")
		return err
	case "flood": // reads nothing of its input either
		defer func() { c.ended <- struct{}{} }()
		for block := make([]byte, 1<<16); ; {
			if _, err := out.Write(block); err != nil {
				return err
			}
		}
	}
	return fmt.Errorf("%s?", command[0])
}

func (c commands) Attach(ctx context.Context, id string, in io.Reader, out, errs io.WriteCloser, tty bool, resize <-chan remotecommandserver.TerminalSize) error {
	return c.Exec(ctx, id, []string{"cat"}, in, out, errs, tty, resize)
}

func (commands) PortForward(_ context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	if port == 81 {
		return errors.New("nobody listens")
	}
	_, err := io.Copy(stream, stream)
	return err
}

// webSockets is a node whose runtime streams as runtimes do: with Kubernetes' own library.
type webSockets struct {
	*node
	t       *testing.T
	address string
	stop    func()
	runtime cristreaming.Server
	server  *httptest.Server
	// hangUp ends the runtime's connections.
	hangUp func()
	// ended is of its commands.
	ended chan struct{}
}

// hangingUp is a listener that knows its connections.
type hangingUp struct {
	net.Listener
	mu   sync.Mutex
	open []net.Conn
}

func (h *hangingUp) Accept() (net.Conn, error) {
	c, err := h.Listener.Accept()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = append(h.open, c)
	return c, err
}

func (h *hangingUp) now() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.open {
		c.Close()
	}
}

func newWebSockets(t *testing.T) *webSockets {
	n := newNode(t)
	server := httptest.NewUnstartedServer(nil)
	hangingUp := &hangingUp{Listener: server.Listener}
	server.Listener = hangingUp
	config := cristreaming.DefaultConfig
	config.Addr = server.Listener.Addr().String()
	ended := make(chan struct{}, 10)
	runtime, err := cristreaming.NewServer(config, commands{ended})
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = runtime
	server.Start()
	t.Cleanup(server.Close)
	n.publish("web", v1.ContainerStatus{Name: "c", ContainerID: "id1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}})
	w := &webSockets{node: n, t: t, runtime: runtime, server: server, hangUp: hangingUp.now, ended: ended}
	w.address, w.stop = serve(t, nodeapi.Routes(n.config()), open())
	return w
}

// exec runs a command as kubectl does.
func (w *webSockets) exec(ctx context.Context, command string, o remotecommand.StreamOptions) error {
	w.t.Helper()
	return w.prepare(command, o)(ctx)
}

func (w *webSockets) prepare(command string, o remotecommand.StreamOptions) func(context.Context) error {
	w.t.Helper()
	request := &runtimeapi.ExecRequest{ContainerId: "id1", Cmd: []string{command}, Stdin: o.Stdin != nil, Stdout: o.Stdout != nil, Stderr: o.Stderr != nil, Tty: o.Tty}
	prepared, err := w.runtime.GetExec(request)
	if err != nil {
		w.t.Fatal(err)
	}
	w.streams = prepared.Url
	q := url.Values{v1.ExecCommandParam: {command}}
	for name, on := range map[string]bool{v1.ExecStdinParam: request.Stdin, v1.ExecStdoutParam: request.Stdout, v1.ExecStderrParam: request.Stderr, v1.ExecTTYParam: request.Tty} {
		if on {
			q.Set(name, "1")
		}
	}
	e, err := remotecommand.NewWebSocketExecutor(w.client(), http.MethodGet, "https://"+w.address+"/exec/default/web/c?"+q.Encode())
	if err != nil {
		w.t.Fatal(err)
	}
	return func(ctx context.Context) error { return e.StreamWithContext(ctx, o) }
}

func (w *webSockets) client() *rest.Config {
	return &rest.Config{Host: "https://" + w.address, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

// sizes are those of a terminal, one after the other.
type sizes chan remotecommand.TerminalSize

func (s sizes) Next() *remotecommand.TerminalSize {
	if size, ok := <-s; ok {
		return &size
	}
	return nil
}

// TestVersion5: what is spoken over WebSocket in version 5 is translated: output, errors, exit codes, the end of the input, sizes.
func TestVersion5(t *testing.T) {
	w := newWebSockets(t)
	silent := klog.NewContext(t.Context(), logr.Discard())
	var out, errs bytes.Buffer
	var code clientexec.CodeExitError
	if err := w.exec(silent, "fail", remotecommand.StreamOptions{Stdout: &out, Stderr: &errs}); !errors.As(err, &code) || code.Code != 7 || out.String() != "out" || errs.String() != "err" {
		t.Errorf("a command that fails: %q, %q, %v", out.String(), errs.String(), err)
	}
	if err := w.exec(silent, "broken", remotecommand.StreamOptions{Stdout: io.Discard}); err == nil || !strings.Contains(err.Error(), "no such program") {
		t.Errorf("a command that can't be run: %v", err)
	}
	out.Reset()
	input := make([]byte, 8<<20)
	_, _ = rand.Read(input)
	if err := w.exec(silent, "sum", remotecommand.StreamOptions{Stdin: bytes.NewReader(input), Stdout: &out}); err != nil || out.String() != fmt.Sprintf("%x", sha256.Sum256(input)) {
		t.Errorf("the end of the input: %q, %v", out.String(), err)
	}
	out.Reset()
	if err := w.exec(silent, "cat", remotecommand.StreamOptions{Stdin: bytes.NewReader(input), Stdout: &out}); err != nil || !bytes.Equal(out.Bytes(), input) {
		t.Errorf("there and back: %d bytes, %v", out.Len(), err)
	}
	out.Reset()
	keyboard, typist := io.Pipe() // nobody types
	defer typist.Close()
	terminal := sizes(make(chan remotecommand.TerminalSize, 2))
	terminal <- remotecommand.TerminalSize{Width: 100, Height: 24}
	terminal <- remotecommand.TerminalSize{Width: 120, Height: 30}
	if err := w.exec(silent, "size", remotecommand.StreamOptions{Stdin: keyboard, Stdout: &out, Tty: true, TerminalSizeQueue: terminal}); err != nil || out.String() != "100x24\n120x30\n" {
		t.Errorf("on a terminal: %q, %v", out.String(), err)
	}
	close(terminal)
	// A command that ends while its input goes on isn't held up by that, nor is what it wrote lost.
	for range 20 {
		out.Reset()
		if err := w.exec(silent, "deaf", remotecommand.StreamOptions{Stdin: endless{}, Stdout: &out}); err != nil || out.String() != "deaf" {
			t.Fatalf("input that nobody reads: %q, %v", out.String(), err)
		}
	}
	// A client that leaves ends the command.
	ctx, cancel := context.WithCancel(silent)
	if err := w.exec(ctx, "flood", remotecommand.StreamOptions{Stdout: then(cancel)}); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that leaves: %v", err)
	}
	waitFor(t, w.ended, "the command of a client that left")
	// So does one whose input is held up by the command.
	_ = w.prepare("flood", remotecommand.StreamOptions{Stdin: endless{}, Stdout: io.Discard})
	client := w.dial("/exec/default/web/c?command=flood&input=1&output=1", "v5.channel.k8s.io")
	fill(t, client, 0)
	client.Close()
	waitFor(t, w.ended, "the command of a client that left while its input was held up")
}

// dial opens a WebSocket.
func (w *webSockets) dial(path, protocol string) *websocket.Conn {
	w.t.Helper()
	d := websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Subprotocols: []string{protocol}}
	client, response, err := d.DialContext(w.t.Context(), "wss://"+w.address+path, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	response.Body.Close()
	w.t.Cleanup(func() { client.Close() })
	return client
}

// fill sends messages that begin with this byte until nobody takes them any more.
func fill(t *testing.T, client *websocket.Conn, first byte) {
	t.Helper()
	message := make([]byte, 1<<14)
	message[0] = first
	for {
		_ = client.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
		if err := client.WriteMessage(websocket.BinaryMessage, message); err != nil {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
			return
		}
	}
}

func waitFor(t *testing.T, what <-chan struct{}, name string) {
	t.Helper()
	select {
	case <-what:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s goes on", name)
	}
}

// endless is input that goes on.
type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// then is called when something is written.
type then func()

func (f then) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}

// TestVersion5Ends: what the runtime has no result of isn't told as a success, and when the agent stops, streams end and are waited for.
func TestVersion5Ends(t *testing.T) {
	w := newWebSockets(t)
	for _, end := range []struct {
		name string
		now  func()
		want []string // any of them
	}{
		{"the runtime", w.hangUp, []string{"before the container runtime returned the command's status"}},
		// Its connections with the client and with the runtime end at once; the client sees whichever is first.
		{"the agent", w.stop, []string{"error reading from error stream", "before the container runtime returned the command's status"}},
	} {
		var running sync.WaitGroup
		begun := make(chan struct{}, streamsAtEnd)
		for range streamsAtEnd {
			input, typist := io.Pipe()
			defer typist.Close()
			e := w.prepare("cat", remotecommand.StreamOptions{Stdin: input, Stdout: then(func() { begun <- struct{}{} })})
			running.Go(func() {
				err := e(klog.NewContext(t.Context(), logr.Discard()))
				if err == nil || !slices.ContainsFunc(end.want, func(want string) bool { return strings.Contains(err.Error(), want) }) {
					t.Errorf("%s ends: %v, want any of %q", end.name, err, end.want)
				}
			})
			if _, err := io.WriteString(typist, "hello"); err != nil {
				t.Fatal(err)
			}
			<-begun
		}
		began := time.Now()
		end.now()
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the end of %s took %s", end.name, took)
		}
		running.Wait()
	}
}

// streamsAtEnd is how many streams there are when something ends.
const streamsAtEnd = 50

// TestVersion5Refused: where there are no streams, a client is told with a status of HTTP.
func TestVersion5Refused(t *testing.T) {
	w := newWebSockets(t)
	odd := newStreamServer(t)
	odd.odd = true
	for _, c := range []struct{ at, path, protocol, want string }{
		{"http://192.0.2.1:80/exec/x", "/exec/default/web/c?command=ls&output=1", "v5.channel.k8s.io", "only those at a loopback address"},
		{"http://192.0.2.1:80/exec/x", "/portForward/default/web", "SPDY/3.1+portforward.k8s.io", "only those at a loopback address"},
		{odd.URL, "/exec/default/web/c?command=ls&output=1", "v5.channel.k8s.io", "unable to upgrade"},
		{odd.URL, "/portForward/default/web", "SPDY/3.1+portforward.k8s.io", "refuses to forward ports: 302"},
		{w.server.URL + "/exec/unknown", "/exec/default/web/c?command=ls&output=1", "v5.channel.k8s.io", "404"},
		{w.server.URL + "/portforward/unknown", "/portForward/default/web", "SPDY/3.1+portforward.k8s.io", "404"},
	} {
		w.streams = c.at
		d := websocket.Dialer{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Subprotocols: []string{c.protocol}}
		client, response, err := d.DialContext(t.Context(), "wss://"+w.address+c.path, nil)
		if err == nil {
			client.Close()
			t.Errorf("%s: there is a stream to %s", c.path, c.at)
			continue
		}
		text, _ := io.ReadAll(response.Body)
		if response.StatusCode < 400 || !strings.Contains(string(text), c.want) || response.Header.Get("Location") != "" {
			t.Errorf("%s of %s: %s %q, want %q", c.path, c.at, response.Status, text, c.want)
		}
	}
}

// TestTunnel: port-forward, as kubectl does it over WebSocket: SPDY in messages.
func TestTunnel(t *testing.T) {
	w := newWebSockets(t)
	dial := func() httpstream.Connection {
		t.Helper()
		prepared, err := w.runtime.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: "sandbox"})
		if err != nil {
			t.Fatal(err)
		}
		w.streams = prepared.Url
		dialer, err := portforward.NewSPDYOverWebsocketDialerForStreaming(&url.URL{Scheme: "https", Host: w.address, Path: "/portForward/default/web"}, w.client())
		if err != nil {
			t.Fatal(err)
		}
		c, protocol, err := dialer.Dial("portforward.k8s.io")
		if err != nil || protocol != "portforward.k8s.io" {
			t.Fatal(protocol, err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	number := 0
	connect := func(c httpstream.Connection, port int) (data, errs httpstream.Stream) {
		t.Helper()
		number++
		headers := http.Header{}
		headers.Set(v1.PortHeader, strconv.Itoa(port))
		headers.Set(v1.PortForwardRequestIDHeader, strconv.Itoa(number))
		headers.Set(v1.StreamType, v1.StreamTypeError)
		errs, err := c.CreateStream(headers)
		if err != nil {
			t.Fatal(err)
		}
		headers.Set(v1.StreamType, v1.StreamTypeData)
		data, err = c.CreateStream(headers)
		if err != nil {
			t.Fatal(err)
		}
		return data, errs
	}
	c := dial()
	sent := make([]byte, 1<<20)
	_, _ = rand.Read(sent)
	for range 20 {
		data, errs := connect(c, 80)
		go func() {
			_, _ = data.Write(sent)
			data.Close()
		}()
		if got, err := io.ReadAll(data); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("there and back: %d bytes, %v", len(got), err)
		}
		if text, err := io.ReadAll(errs); len(text) > 0 || err != nil {
			t.Errorf("an error: %s, %v", text, err)
		}
		c.RemoveStreams(data, errs)
	}
	if _, errs := connect(c, 81); true {
		if text, err := io.ReadAll(errs); !strings.Contains(string(text), "nobody listens") || err != nil {
			t.Errorf("nobody listens: %s, %v", text, err)
		}
	}
	c.Close()
	c = dial()
	data, _ := connect(c, 80)
	if _, err := data.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.stop()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("a tunnel held up the end for %s", took)
	}
	<-c.CloseChan()
}

// TestTunnelIsHeldUp: a tunnel whose runtime doesn't read ends with its pod, and with the agent.
func TestTunnelIsHeldUp(t *testing.T) {
	w, s := newWebSockets(t), newStreamServer(t)
	s.deaf = make(chan struct{})
	defer close(s.deaf)
	w.streams = s.URL + "/portforward/token"
	client := w.dial("/portForward/default/web", "SPDY/3.1+portforward.k8s.io")
	fill(t, client, 0)
	w.mu.Lock()
	w.observed["uid-web"] = &pod.Observed{UID: "uid-web", Sandboxes: []pod.Sandbox{{ID: "sandbox", State: pod.SandboxNotReady}}}
	w.mu.Unlock()
	w.statuses.Forget("uid-web")
	_ = client.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, _, err := client.ReadMessage(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the pod has ended, its tunnel has not: %v", err)
	}

	w.publish("web", v1.ContainerStatus{Name: "c"})
	fill(t, w.dial("/portForward/default/web", "SPDY/3.1+portforward.k8s.io"), 0)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		w.stop()
	}()
	waitFor(t, stopped, "the agent")
}
