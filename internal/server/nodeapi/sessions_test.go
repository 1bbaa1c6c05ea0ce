package nodeapi_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/nodeapi"
)

// overSocket serves sessions to the commands on this machine until stop is called, and returns the socket and what is logged.
func overSocket(t *testing.T, n *node) (path string, logged *records, stop func()) {
	t.Helper()
	logged = &records{}
	c := n.config()
	c.Log = funcr.New(func(_, args string) { logged.add(args) }, funcr.Options{})
	path = filepath.Join(t.TempDir(), "deckhand.sock")
	l, err := socket.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s := local.NewServer(nil, nil, nil, nodeapi.Sessions(c), nil, logr.Discard())
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	stop = func() { cancel(); running.Wait() }
	t.Cleanup(stop)
	return path, logged, stop
}

type records struct {
	mu   sync.Mutex
	text string
}

func (r *records) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.text += line + "\n"
}

func (r *records) all() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.text
}

// dialSocket asks for a stream at the socket, and returns what it is answered with.
func dialSocket(t *testing.T, socket, path string) (net.Conn, *bufio.Reader, *http.Response) {
	t.Helper()
	c, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: deckhand\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n", path)
	in := bufio.NewReader(c)
	response, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c, in, response
}

// TestSessionsOfCommands: the commands on this machine have the streams that the HTTPS server has, and what they do is recorded as well.
func TestSessionsOfCommands(t *testing.T) {
	n, s := newNode(t), newStreamServer(t)
	n.streams = s.URL + "/exec/token"
	n.publish("web", v1.ContainerStatus{Name: "c", ContainerID: "id1", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}, v1.ContainerStatus{Name: "soon"})
	socket, logged, stop := overSocket(t, n)
	var open []net.Conn
	for _, path := range []string{"/exec/default/web/c?command=secret&input=1&output=1", "/attach/default/web/c?output=1", "/portForward/default/web"} {
		c, in, response := dialSocket(t, socket, path)
		if response.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%s: %s", path, response.Status)
		}
		fmt.Fprintln(c, "hello")
		if said, err := in.ReadString('\n'); err != nil || said != "hello\n" {
			t.Errorf("%s: %q, %v", path, said, err)
		}
		open = append(open, c)
	}
	open[0].Close()
	<-s.left
	// A command may have an argument that is as long as Linux takes, each byte of it escaped.
	c, _, response := dialSocket(t, socket, "/exec/default/web/c?output=1&command="+strings.Repeat("%00", 128<<10))
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.Errorf("a long command: %s", response.Status)
	}
	c.Close()
	<-s.left
	for _, c := range []struct {
		path string
		code int
		text string
	}{
		{"/exec/default/web/soon?command=ls&output=1", 404, `container not found ("soon")`},
		{"/exec/default/none/c?command=ls&output=1", 404, `pod "none" not found`},
		{"/exec/default/web/c?output=1", 400, "specify a command"},
		{"/run/default/web/c?cmd=ls", 404, "not found"},
		{"/containerLogs/default/web/c", 404, "not found"},
	} {
		_, _, response := dialSocket(t, socket, c.path)
		if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != c.code || !strings.Contains(string(text), c.text) {
			t.Errorf("%s: %s %q %v, want %d %q", c.path, response.Status, text, err, c.code, c.text)
		}
	}
	n.cannot = status.Error(codes.Unimplemented, "unknown method Attach")
	if _, _, response := dialSocket(t, socket, "/attach/default/web/c?output=1"); response.StatusCode != http.StatusNotImplemented {
		t.Errorf("a runtime that can't attach: %s", response.Status)
	}

	began := time.Now()
	stop()
	if took := time.Since(began); took > time.Second {
		t.Errorf("sessions held up the end for %s", took)
	}
	for range 2 {
		<-s.left
	}
	for _, want := range []string{
		`"A user reaches into a pod" "user"="USER" "action"="exec" "pod"={"name"="web" "namespace"="default"} "containerName"="c"`,
		`"A user reaches into a pod" "user"="USER" "action"="portForward"`,
		`"A request was served" "method"="POST" "path"="/exec/default/web/c" "user"="USER"`,
		`"path"="/attach/default/web/c" "user"="USER" "address"="@" "status"=101`,
		`"path"="/exec/default/none/c" "user"="USER" "address"="@" "status"=404`,
	} {
		if !strings.Contains(logged.all(), strings.ReplaceAll(want, "USER", fmt.Sprint("uid ", os.Getuid()))) {
			t.Errorf("not recorded: %s\n%s", want, logged.all())
		}
	}
	if strings.Contains(logged.all(), "secret") {
		t.Errorf("the command is recorded:\n%s", logged.all())
	}
}

// TestForwardEndsWithThePod: nobody else tells a client that has no connection to it just now.
func TestForwardEndsWithThePod(t *testing.T) {
	n, s := newNode(t), newStreamServer(t)
	n.streams = s.URL + "/portforward/token"
	n.publish("web", v1.ContainerStatus{Name: "c"})
	n.publish("other", v1.ContainerStatus{Name: "c"})
	socket, _, _ := overSocket(t, n)
	_, web, response := dialSocket(t, socket, "/portForward/default/web")
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(response.Status)
	}
	c, other, _ := dialSocket(t, socket, "/portForward/default/other")
	n.publish("web", v1.ContainerStatus{Name: "c", RestartCount: 1}) // which isn't the pod's end
	n.mu.Lock()
	n.observed["uid-web"] = &pod.Observed{UID: "uid-web", Sandboxes: []pod.Sandbox{{ID: "sandbox", State: pod.SandboxNotReady}}}
	n.mu.Unlock()
	n.statuses.Forget("uid-web")
	if _, err := web.ReadByte(); err != io.EOF {
		t.Errorf("the forward: %v", err)
	}
	fmt.Fprintln(c, "hello")
	if said, err := other.ReadString('\n'); said != "hello\n" {
		t.Errorf("that of another pod: %q, %v", said, err)
	}
}
