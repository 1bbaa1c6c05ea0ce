package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

func TestHooks(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	for name, test := range map[string]func(*testing.T, *node.Node){
		"postStart": testPostStart, "postStart fails": testPostStartFails, "preStop": testPreStop,
		"preStop is cut off": testPreStopCutOff, "stopSignal": testStopSignal,
		"removed while starting": testRemovedWhileStarting, "no grace": testNoGrace,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, n.For(t))
		})
	}
}

// hookServer is a web server outside of all pods, for hooks to call.
type hookServer struct {
	port int
	// called gets a value for each call, which is answered when answer is closed.
	called, answer chan struct{}
}

func serveHooks(t *testing.T) *hookServer {
	t.Helper()
	h := &hookServer{called: make(chan struct{}, 100), answer: make(chan struct{})}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
		h.called <- struct{}{}
		select {
		case <-h.answer:
		case <-q.Context().Done():
		}
	}))
	t.Cleanup(server.Close)
	h.port = server.Listener.Addr().(*net.TCPAddr).Port
	return h
}

// hook is the handler that calls the server.
func (h *hookServer) hook() string {
	return fmt.Sprintf("{httpGet: {host: 127.0.0.1, port: %d}}", h.port)
}

func (h *hookServer) awaitCall(t *testing.T) {
	t.Helper()
	select {
	case <-h.called:
	case <-time.After(node.Deadline):
		t.Fatal("the hook isn't called")
	}
}

// A container counts as started after its hook only, and the next one waits for that.
func testPostStart(t *testing.T, n *node.Node) {
	server := serveHooks(t)
	n.Write("p.yaml", toolPod(n, "p", containers(
		tool("first", "act", "lifecycle: {postStart: {exec: {command: [tools, append, /diary/log, hook of first]}}}"),
		tool("second", "act", "lifecycle: {postStart: "+server.hook()+"}"),
		tool("third", "act"))))
	server.awaitCall(t)
	n.Await("the hook runs", runs("p", "first", 0), readyIs("p", "first", true), starting("p", "second"), readyIs("p", "second", false))
	if times(t, n, "p", "third started") > 0 {
		t.Error("the third container didn't wait for the second's hook")
	}
	close(server.answer)
	n.Await("all is up", node.Ready("p"))
	inOrder(t, n, "p", "hook of first", "second started", "third started")
	remove(t, n, "p")
}

func testPostStartFails(t *testing.T, n *node.Node) {
	n.Write("f.yaml", toolPod(n, "f", containers(
		tool("main", "act", "lifecycle: {postStart: {exec: {command: [tools, fail-once, /diary/failed, '3']}}}"))))
	n.Await("with its hook well at the next start, it is ready", node.Ready("f"), runs("f", "main", 1))
	n.AwaitEvent("f", "FailedPostStartHook", "{main}", "exited with 3")
	n.AwaitEvent("f", "Killing", "{main}", "FailedPostStartHook")
	inOrder(t, n, "f", "main got SIGTERM", "main ended", "main started")
	remove(t, n, "f")
}

// Each kind of hook comes before its container is told to stop.
func testPreStop(t *testing.T, n *node.Node) {
	n.Write("s.yaml", toolPod(n, "s", "terminationGracePeriodSeconds: 60", containers(
		tool("exec", "act", "lifecycle: {preStop: {exec: {command: [tools, append, /diary/log, hook of exec]}}}"),
		tool("http", "act -http :8080", "lifecycle: {preStop: {httpGet: {port: 8080, path: '/append?hook-of-http'}}}",
			"readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}"),
		tool("sleep", "act", "lifecycle: {preStop: {sleep: {seconds: 1}}}"),
		tool("none", "act", "lifecycle: {preStop: {sleep: {seconds: 0}}}"))))
	n.Await("it runs", node.Ready("s"))
	began := time.Now()
	remove(t, n, "s")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s: the grace was waited for", took)
	}
	inOrder(t, n, "s", "hook of exec", "exec got SIGTERM", "exec ended")
	inOrder(t, n, "s", "hook-of-http", "http got SIGTERM", "http ended")
	if waited := inOrder(t, n, "s", "sleep got SIGTERM")[0].Sub(began); waited < time.Second {
		t.Errorf("the hook that sleeps was over after %s", waited)
	}
	inOrder(t, n, "s", "none got SIGTERM", "sleep got SIGTERM")
}

// A hook that takes longer than the grace isn't waited for any more; then there are 2 s.
func testPreStopCutOff(t *testing.T, n *node.Node) {
	n.Write("c.yaml", toolPod(n, "c", "terminationGracePeriodSeconds: 2", containers(
		tool("main", "act -linger 1h", "lifecycle: {preStop: {exec: {command: [tools, act, -name, hook, -diary, /diary/log]}}}"),
		tool("other", "act"))))
	n.Await("it runs", node.Ready("c"))
	began := time.Now()
	remove(t, n, "c")
	inOrder(t, n, "c", "other got SIGTERM", "main got SIGTERM")
	at := inOrder(t, n, "c", "hook started", "main got SIGTERM")
	if hook := at[1].Sub(began); hook < 1500*time.Millisecond {
		t.Errorf("the hook was waited for %s only, and the grace wasn't over", hook)
	}
	if took := time.Since(began); took < 3500*time.Millisecond || took > 20*time.Second {
		t.Errorf("the pod was gone after %s, want the grace of 2s and 2s more", took)
	}
	if times(t, n, "c", "main ended") > 0 {
		t.Error("it ended by itself")
	}
	n.AwaitEvent("c", "FailedPreStopHook", "{main}")
}

func testStopSignal(t *testing.T, n *node.Node) {
	n.Write("u.yaml", toolPod(n, "u", "os: {name: linux}", containers(
		tool("usr", "act", "lifecycle: {stopSignal: SIGUSR1}"), tool("term", "act"))))
	s := n.Await("it runs", node.Ready("u"))
	for name, want := range map[string]string{"usr": "SIGUSR1", "term": "SIGTERM"} {
		if got := status(t, s, "u", name).StopSignal; got == nil || string(*got) != want {
			t.Errorf("%s tells the stop signal %v, want %s", name, got, want)
		}
	}
	remove(t, n, "u")
	inOrder(t, n, "u", "usr got SIGUSR1", "usr ended")
	inOrder(t, n, "u", "term got SIGTERM", "term ended")
	if times(t, n, "u", "usr got SIGTERM") > 0 {
		t.Error("it got SIGTERM too")
	}
}

// A pod that isn't up yet ends as one that is: in its time, and with nothing begun any more.
func testRemovedWhileStarting(t *testing.T, n *node.Node) {
	server := serveHooks(t)
	const grace = "terminationGracePeriodSeconds: 60"
	n.Write("i.yaml", toolPod(n, "i", grace, initContainers(tool("one", "act"), tool("two", "act")), containers(tool("main", "act"))))
	n.Write("h.yaml", toolPod(n, "h", grace, containers(tool("main", "act", "lifecycle: {postStart: "+server.hook()+"}"), tool("next", "act"))))
	server.awaitCall(t)
	inOrder(t, n, "i", "one started")
	inOrder(t, n, "h", "main started")
	remove(t, n, "i")
	remove(t, n, "h")
	inOrder(t, n, "i", "one got SIGTERM", "one ended")
	inOrder(t, n, "h", "main got SIGTERM", "main ended")
	for pod, never := range map[string]string{"i": "two started", "h": "next started"} {
		if times(t, n, pod, never) > 0 {
			t.Errorf("%s of %s, which was removed before", never, pod)
		}
	}
}

// Without a grace there is no hook; 2 s are between the stop signal and SIGKILL all the same.
func testNoGrace(t *testing.T, n *node.Node) {
	n.Write("z.yaml", toolPod(n, "z", "terminationGracePeriodSeconds: 0", containers(
		tool("main", "act -linger 1h", "lifecycle: {preStop: {exec: {command: [tools, append, /diary/log, hook]}}}"))))
	n.Await("it runs", node.Ready("z"))
	inOrder(t, n, "z", "main started")
	remove(t, n, "z")
	inOrder(t, n, "z", "main started", "main got SIGTERM")
	if lines := diary(t, n, "z"); len(lines) != 2 {
		t.Errorf("a hook ran, or something else happened between the signals:\n%s", reported(lines))
	}
}
