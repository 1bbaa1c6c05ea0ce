package nodeapi_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/nodeapi"
)

// streamServer is a runtime's: it says again what it is told, and counts those it talks with.
type streamServer struct {
	*httptest.Server
	t *testing.T
	// silent never answers, odd answers with a redirect.
	silent, odd bool
	// deaf, if set, has it read nothing of streams until that is closed.
	deaf chan struct{}
	// left is told when a client has left.
	left    chan struct{}
	arrived chan http.Header
}

func newStreamServer(t *testing.T) *streamServer {
	s := &streamServer{t: t, left: make(chan struct{}, 1000), arrived: make(chan http.Header, 1000)}
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.Close)
	return s
}

func (s *streamServer) serve(w http.ResponseWriter, r *http.Request) {
	defer func() { s.left <- struct{}{} }()
	s.arrived <- r.Header
	switch {
	case s.odd:
		http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
		return
	case s.silent:
		<-r.Context().Done()
		return
	}
	c, b, err := w.(http.Hijacker).Hijack()
	if err != nil {
		s.t.Error(err)
		return
	}
	defer c.Close()
	fmt.Fprintf(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	if s.deaf != nil {
		<-s.deaf
		return
	}
	_, _ = io.Copy(c, b) // until the client leaves
}

// session is a client's stream.
type session struct {
	*tls.Conn
	in *bufio.Reader
}

// connect asks for a stream, and returns what it is answered with.
func connect(t *testing.T, address, method, path string) (*session, *http.Response) {
	t.Helper()
	c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if _, err := fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n", method, path); err != nil {
		t.Fatal(err)
	}
	s := &session{c, bufio.NewReader(c)}
	response, err := http.ReadResponse(s.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	return s, response
}

func (s *session) says(t *testing.T, text string) {
	t.Helper()
	if _, err := io.WriteString(s, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(s.in, got); err != nil || string(got) != text {
		t.Fatalf("%q comes back as %q, %v", text, got, err)
	}
}

func streaming(t *testing.T) (n *node, s *streamServer, address string, stop func()) {
	n, s = newNode(t), newStreamServer(t)
	n.streams = s.URL + "/exec/token"
	running := v1.ContainerState{Running: &v1.ContainerStateRunning{}}
	n.publish("web", v1.ContainerStatus{Name: "c", ContainerID: "id1", State: running}, v1.ContainerStatus{Name: "soon"})
	address, stop = serve(t, nodeapi.Routes(n.config()), open())
	return n, s, address, stop
}

// TestStreams: what a client says comes to the runtime, and back; what it asked for does, too.
func TestStreams(t *testing.T) {
	n, s, address, _ := streaming(t)
	for _, c := range []struct{ method, path, asked string }{
		{"POST", "/exec/default/web/c?command=sh&command=-c&command=a+b&input=1&output=1&tty=1&error=1", `*v1.ExecRequest container_id:"id1" cmd:"sh" cmd:"-c" cmd:"a b" tty:true stdin:true stdout:true`},
		{"GET", "/exec/default/web/uid-web/c?command=ls&output=true&error=true", `*v1.ExecRequest container_id:"id1" cmd:"ls" stdout:true stderr:true`},
		{"POST", "/attach/default/web/c?output=1", `*v1.AttachRequest container_id:"id1" stdout:true`},
		{"GET", "/attach/default/web/uid-web/c?input=1", `*v1.AttachRequest container_id:"id1" stdin:true`},
		{"POST", "/portForward/default/web", `*v1.PortForwardRequest pod_sandbox_id:"sandbox"`},
		{"GET", "/portForward/default/web/uid-web?port=80&port=8080", `*v1.PortForwardRequest pod_sandbox_id:"sandbox" port:80 port:8080`},
	} {
		session, response := connect(t, address, c.method, c.path)
		if response.StatusCode != http.StatusSwitchingProtocols || response.Header.Get("Upgrade") != "SPDY/3.1" {
			t.Fatalf("%s %s: %s", c.method, c.path, response.Status)
		}
		if h := <-s.arrived; h.Get("X-Stream-Protocol-Version") != "v4.channel.k8s.io" || h.Get("Authorization") != "" {
			t.Errorf("header %v", h)
		}
		session.says(t, "hello")
		session.says(t, strings.Repeat("much ", 1<<16))
		session.Close()
		<-s.left
		if got := strings.ReplaceAll(n.asked[len(n.asked)-1], "  ", " "); got != c.asked {
			t.Errorf("%s %s: asked %s, want %s", c.method, c.path, got, c.asked)
		}
	}
}

// TestNoStreams: whoever asks for what there isn't is told.
func TestNoStreams(t *testing.T) {
	n, s, address, _ := streaming(t)
	for _, c := range []struct {
		path string
		code int
		text string
	}{
		{"/exec/default/web/c?output=1", 400, "specify a command"},
		{"/exec/default/web/c?command=ls", 400, "at least 1 of stdin, stdout, stderr"},
		{"/exec/default/web/c?command=ls&tty=1&error=1", 400, "at least 1 of"},
		{"/exec/default/web/soon?command=ls&output=1", 404, `container not found ("soon")`},
		{"/exec/default/web/none?command=ls&output=1", 404, `container "none" not found in pod "web"`},
		{"/exec/default/none/c?command=ls&output=1", 404, `pod "none" not found`},
		{"/exec/default/web/other/c?command=ls&output=1", 404, `pod "web" not found`},
		{"/portForward/default/web?port=0", 400, `port "0" is none`},
		{"/portForward/default/web?port=65536", 400, "65536"},
		{"/portForward/default/none", 404, `pod "none" not found`},
	} {
		_, response := connect(t, address, "POST", c.path)
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != c.code || !strings.Contains(string(text), c.text) {
			t.Errorf("%s: %d %q %v, want %d %q", c.path, response.StatusCode, text, err, c.code, c.text)
		}
	}
	if code, text := ask(t, "POST", "https://"+address+"/exec/default/web/c?command=ls&output=1", ""); code != 400 || !strings.Contains(text, "Upgrade request required") {
		t.Errorf("without an upgrade: %d %s", code, text)
	}
	if len(s.arrived) > 0 {
		t.Error("the runtime's streams were asked for")
	}
	s.odd = true
	if _, response := connect(t, address, "POST", "/exec/default/web/c?command=ls&output=1"); response.StatusCode != 500 || response.Header.Get("Location") != "" {
		t.Errorf("a redirect: %s %v", response.Status, response.Header)
	}
	for _, url := range []string{"http://192.0.2.1:80/exec/x", "http://[2001:db8::1]:80/exec/x", "file:///etc/passwd", "unix:///run/x", ":", ""} {
		n.streams = url
		_, response := connect(t, address, "POST", "/exec/default/web/c?command=ls&output=1")
		if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 500 {
			t.Errorf("%s: %s %s %v", url, response.Status, text, err)
		}
	}
}

// TestStreamsEnd: when the agent stops, streams end at once and are waited for, also one that the runtime never answered; when a
// client leaves, so does its connection to the runtime.
func TestStreamsEnd(t *testing.T) {
	_, s, address, stop := streaming(t)
	var sessions []*session
	for range 100 {
		one, response := connect(t, address, "POST", "/exec/default/web/c?command=sh&input=1&output=1")
		if response.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(response.Status)
		}
		sessions = append(sessions, one)
	}
	// Streams take nobody's place.
	if code, text := ask(t, "GET", "https://"+address+"/healthz", ""); code != 200 {
		t.Errorf("beside streams: %d %s", code, text)
	}
	for i, one := range sessions[:50] {
		one.says(t, fmt.Sprint("hello ", i))
		one.Close()
	}
	for range 50 {
		<-s.left
	}
	s.silent = true
	var silent sync.WaitGroup
	silent.Go(func() {
		c, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Error(err)
			return
		}
		defer c.Close()
		fmt.Fprint(c, "POST /attach/default/web/c?output=1 HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_, _ = io.ReadAll(c) // until it is closed
	})
	for range 101 {
		<-s.arrived
	}
	began := time.Now()
	stop()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("streams held up the end for %s", took)
	}
	for range 51 {
		<-s.left
	}
	silent.Wait()
	for _, one := range sessions[50:] {
		if err := one.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		var timeout net.Error
		if _, err := one.in.ReadByte(); err == nil || errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("a stream goes on: %v", err)
		}
	}
}
