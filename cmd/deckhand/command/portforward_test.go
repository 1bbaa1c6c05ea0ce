package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

// forwarding begins a port-forward to a pod in which carry answers. The port 80 has the name "http".
func forwarding(t *testing.T, carry func(int32, io.ReadWriteCloser) error, args ...string) (s *session, stopAgent func()) {
	t.Helper()
	agent := localtest.New()
	agent.OnSession = localtest.Forwards(carry)
	view := jobView(v1.PodRunning, running)
	view.Pod.Spec.Containers[0].Ports = []v1.ContainerPort{{Name: "http", ContainerPort: 80}, {ContainerPort: 8080}}
	agent.Update(pods(view))
	root := t.TempDir()
	listener, err := socket.Listen(local.SocketPath(root))
	if err != nil {
		t.Fatal(err)
	}
	stopAgent = localtest.ServeOn(t, agent, listener, root)
	return begin(t, Deps{RootDir: root}, "", append([]string{"port-forward"}, args...)...), stopAgent
}

// listens reads where the command listens for a port of the pod.
func (s *session) listens(port int) string {
	s.t.Helper()
	line, err := s.out.ReadString('\n')
	at, to, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "Forwarding from "), " -> ")
	if err != nil || !ok || to != fmt.Sprint(port) {
		s.t.Fatalf("it says %q, %v, for port %d", line, err, port)
	}
	return at
}

// drain reads what it says on about connections.
func (s *session) drain() *sync.WaitGroup {
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, s.out) })
	return &reading
}

// TestPortForward: connections are carried, many at once, and each half ends for itself.
func TestPortForward(t *testing.T) {
	// It says what it was told once the client has ended its half.
	s, _ := forwarding(t, func(port int32, c io.ReadWriteCloser) error {
		text, err := io.ReadAll(c)
		if err == nil {
			_, err = fmt.Fprintf(c, "%d %s", port, text)
		}
		return errors.Join(err, c.Close())
	}, "--address", "127.0.0.1", "job", ":http", "0:8080")
	at := []string{s.listens(80), s.listens(8080)}
	reading := s.drain()
	reading.Go(func() {
		if text, err := io.ReadAll(s.err); err != nil || len(text) > 0 {
			t.Errorf("it says %q, %v", text, err)
		}
	})
	var clients sync.WaitGroup
	for i := range 100 {
		clients.Go(func() {
			c, err := net.Dial("tcp", at[i%2])
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			said := strings.Repeat(fmt.Sprint("hello ", i), 1000)
			if _, err := io.WriteString(c, said); err != nil {
				t.Error(err)
			}
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Error(err)
			}
			want := fmt.Sprint([]int{80, 8080}[i%2]) + " " + said
			if got, err := io.ReadAll(c); err != nil || string(got) != want {
				t.Errorf("%d: %d bytes, %v, want %d", i, len(got), err, len(want))
			}
		})
	}
	clients.Wait()
	s.stop()
	if code := <-s.code; code != 0 {
		t.Errorf("exit code %d", code)
	}
	reading.Wait()
	if _, err := net.Dial("tcp", at[0]); err == nil {
		t.Error("the port is open still")
	}
}

// TestPortForwardErrors: one connection that fails is told, and ends no other; the end of the session ends all.
func TestPortForwardErrors(t *testing.T) {
	s, stopAgent := forwarding(t, func(port int32, c io.ReadWriteCloser) error {
		if port == 81 {
			return errors.New("connection refused\x1b[2J" + strings.Repeat(" and more", 1<<17))
		}
		_, err := io.Copy(c, c)
		return errors.Join(err, c.Close())
	}, "--address=127.0.0.1", "job", ":81", ":82")
	refused, echo := s.listens(81), s.listens(82)
	reading := s.drain()
	dial := func(at string) net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	open := dial(echo)
	fmt.Fprintln(open, "one")
	said := bufio.NewReader(open)
	if line, err := said.ReadString('\n'); line != "one\n" {
		t.Fatalf("%q, %v", line, err)
	}
	c := dial(refused)
	_, port, err := net.SplitHostPort(refused)
	if err != nil {
		t.Fatal(err)
	}
	line, err := s.err.ReadString('\n')
	if want := "error: forward " + port + " -> 81: "; err != nil || !strings.HasPrefix(line, want) || !strings.Contains(line, "connection refused\ufffd[2J") {
		t.Errorf("it says %q, %v, want %q", line, err, want)
	}
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("a connection that was refused: %v", err)
	}
	fmt.Fprintln(open, "two")
	if line, err := said.ReadString('\n'); line != "two\n" {
		t.Fatalf("%q, %v", line, err)
	}
	stopAgent()
	if line, err := s.err.ReadString('\n'); err != nil || line != "error: lost connection to pod: it has ended, or the agent or the container runtime has stopped\n" {
		t.Errorf("it says %q, %v", line, err)
	}
	if code := <-s.code; code != 1 {
		t.Errorf("exit code %d", code)
	}
	if _, err := said.ReadString('\n'); err == nil {
		t.Error("a connection goes on")
	}
	reading.Wait()
}

// TestPortForwardListens: at the addresses that are asked for, as kubectl does.
func TestPortForwardListens(t *testing.T) {
	echo := func(_ int32, c io.ReadWriteCloser) error {
		_, err := io.Copy(c, c)
		return err
	}
	taken, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().(*net.TCPAddr).Port
	s, _ := forwarding(t, echo, "--address=127.0.0.1,127.0.0.2", "job", fmt.Sprintf("%d:81", port), ":82")
	// The one that is taken at one address is told; the other has the same number at both.
	if at := s.listens(81); at != fmt.Sprintf("127.0.0.2:%d", port) {
		t.Error(at)
	}
	first, second := s.listens(82), s.listens(82)
	if first != strings.Replace(second, "127.0.0.2", "127.0.0.1", 1) {
		t.Errorf("it listens at %s and %s", first, second)
	}
	if line, err := s.err.ReadString('\n'); err != nil || !strings.Contains(line, "address already in use") {
		t.Errorf("it says %q, %v", line, err)
	}
	s.stop()
	s.ended(0)

	// All of one family's addresses are none of the other's.
	s, _ = forwarding(t, echo, "--address=0.0.0.0", "job", ":81")
	at := s.listens(81)
	if !strings.HasPrefix(at, "0.0.0.0:") {
		t.Errorf("it listens at %s", at)
	}
	if c, err := net.Dial("tcp", strings.Replace(at, "0.0.0.0", "[::1]", 1)); err == nil {
		c.Close()
		t.Error("it listens at addresses of IPv6")
	}
	s.stop()
	s.ended(0)

	s, _ = forwarding(t, echo, "--address=127.0.0.1", "job", fmt.Sprintf("%d:81", port))
	if line, err := s.err.ReadString('\n'); err != nil || !strings.HasPrefix(line, "error: ") || !strings.Contains(line, "address already in use") {
		t.Errorf("it says %q, %v", line, err)
	}
	s.ended(1)
	for _, c := range []struct {
		args []string
		said string
	}{
		{[]string{"job", "0"}, `"0" is neither a port's number (1 to 65535) nor its name in the pod's spec`},
		{[]string{"job", "65536"}, `"65536" is neither`},
		{[]string{"job", "80:https"}, `"https" is neither`},
		{[]string{"job", "x:80"}, `"x" isn't a port's number (0 to 65535)`},
		{[]string{"job", "--address=here", "80"}, `"here" is neither an IP address nor localhost`},
		{[]string{"job"}, `[LOCAL:]REMOTE... is missing`},
	} {
		s, _ := forwarding(t, echo, c.args...)
		if line, err := s.err.ReadString('\n'); err != nil || !strings.Contains(line, c.said) {
			t.Errorf("%v: it says %q, %v, want %q", c.args, line, err, c.said)
		}
		s.ended(2)
	}
}
