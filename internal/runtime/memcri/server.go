// Package memcri is a fake container runtime: a CRI server that manages sandboxes, containers and images in memory
// without running anything, and otherwise behaves like containerd 2.4. It is for tests and measurements.
//
// It passes the same contract suite as containerd (internal/runtime/critest). One difference is intended: if a
// reader of the event stream falls behind, containerd blocks every call that causes an event, whereas memcri drops
// events past Options.EventQueue and counts them.
//
// It uses only package time as its clock, so that a server that is used through DialContext without a socket can
// run in a testing/synctest bubble.
package memcri

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/memcri/node"
)

// Behaviour scripts a container after its start.
type Behaviour = node.Behaviour

// Line is a line a container writes to its log.
type Line = node.Line

// Forever is a Behaviour.IgnoreTerm: the container ends only with SIGKILL.
const Forever = node.Forever

// ExecResult is the result of a command in a container.
type ExecResult = node.ExecResult

// Options configure a Server. The zero value is a good default.
type Options struct {
	// PodCIDR is the IPv4 network of sandboxes' addresses; default 10.88.0.0/16.
	PodCIDR string
	// Images exist from the start.
	Images []string
	// WriteLogs creates the log files specified with CreateContainer when the container starts, with the output of
	// its Behaviour.
	WriteLogs bool
	// Program returns the Behaviour of containers without a match by name, image or command; default node.Example.
	Program func(command []string) Behaviour
	// EventQueue is how many events each current or next reader of the event stream may fall behind before it
	// misses some; default 10,000.
	EventQueue int
	// CgroupDriver is the driver that RuntimeConfig reports; default SYSTEMD, the zero value.
	CgroupDriver runtimeapi.CgroupDriver
}

// Server is the runtime with its controls. Its state outlives its connections: see Crash and Reboot. All methods
// may be called concurrently.
type Server struct {
	// Injector injects faults and counts calls, by method name ("RunPodSandbox").
	*node.Injector
	// Images are the runtime's images and the behaviours of their pulls.
	Images *node.Store

	// Node is the state of sandboxes and containers, with its controls: Exit, Behave, DropEvents, Violations and
	// others. Its CRI methods may be called directly; neither faults nor counters apply then.
	*node.Node

	mu     sync.Mutex // guards the fields below
	socket string
	buffer *bufconn.Listener
	grpc   *grpc.Server
	served chan struct{}
}

// New returns a Server that doesn't serve yet. It fails if an option is invalid.
func New(o Options) (*Server, error) {
	if o.Program == nil {
		o.Program = node.Example
	}
	images := node.NewImageStore("/var/lib/memcri")
	n, err := node.New(node.Options{
		PodCIDR:      cmp.Or(o.PodCIDR, "10.88.0.0/16"),
		Images:       images,
		WriteLogs:    o.WriteLogs,
		Program:      o.Program,
		EventQueue:   cmp.Or(o.EventQueue, 10000),
		CgroupDriver: o.CgroupDriver,
	})
	if err != nil {
		return nil, err
	}
	for _, ref := range o.Images {
		images.Add(ref, false)
	}
	return &Server{Injector: node.NewFaults(), Node: n, Images: images}, nil
}

// Start serves on a unix socket with mode 0600, replacing a stale one. With an empty path it serves in process
// only: see DialContext.
func (s *Server) Start(socket string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grpc != nil {
		return errors.New("memcri is already serving")
	}
	s.socket = socket
	return s.serve()
}

func (s *Server) serve() error {
	listener, err := s.listen()
	if err != nil {
		return err
	}
	s.SetDown(false)
	s.grpc = grpc.NewServer(
		grpc.ChainUnaryInterceptor(s.Unary),
		grpc.ChainStreamInterceptor(s.Stream),
		grpc.WaitForHandlers(true),
	)
	runtimeapi.RegisterRuntimeServiceServer(s.grpc, s.Node)
	runtimeapi.RegisterImageServiceServer(s.grpc, s.Images)
	s.served = make(chan struct{})
	go func(g *grpc.Server, served chan struct{}) {
		defer close(served)
		// Serve only fails because of Stop, or if it loses its listener; clients see either as a lost connection.
		_ = g.Serve(listener)
	}(s.grpc, s.served)
	return nil
}

func (s *Server) listen() (net.Listener, error) {
	if s.socket == "" {
		s.buffer = bufconn.Listen(256 << 10)
		return s.buffer, nil
	}
	if err := os.Remove(s.socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("remove stale socket: %w", err)
	}
	listener, err := net.Listen("unix", s.socket)
	if err != nil {
		return nil, fmt.Errorf("serve CRI: %w", err)
	}
	if err := os.Chmod(s.socket, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("restrict CRI socket: %w", err), listener.Close())
	}
	return listener, nil
}

// Close stops serving and all containers. The Server can't be used again.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.EndStreams()
	s.halt()
	s.Node.Close()
}

// Crash drops every connection and stops serving until Restart, as if the runtime's process had died. Containers
// continue; those that end meanwhile end without an event and with exit code 255 and reason Unknown, as with
// containerd.
func (s *Server) Crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.halt()
}

func (s *Server) halt() {
	if s.grpc == nil {
		return
	}
	s.SetDown(true)
	s.grpc.Stop()
	<-s.served
	s.grpc = nil
}

// Restart serves again after Crash, on the same socket.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grpc != nil {
		return errors.New("memcri is serving, so it can't be restarted")
	}
	return s.serve()
}

// CrashAndRestart calls Crash and then Restart.
func (s *Server) CrashAndRestart() error {
	s.Crash()
	return s.Restart()
}

// Reboot simulates a reboot of the node: connections drop, and when the runtime serves again every sandbox is
// NotReady without an address, and every container that ran has exited with 255 and the reason Unknown.
func (s *Server) Reboot() error {
	s.Crash()
	s.Node.Reboot()
	return s.Restart()
}

// DialContext connects to the server, over the socket or in process. It has the signature of
// grpc.WithContextDialer; the address is ignored.
func (s *Server) DialContext(ctx context.Context, _ string) (net.Conn, error) {
	s.mu.Lock()
	socket, buffer := s.socket, s.buffer
	s.mu.Unlock()
	switch {
	case socket != "":
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	case buffer != nil:
		return buffer.DialContext(ctx)
	default:
		return nil, errors.New("memcri was never started")
	}
}

// Connect returns a client connection, which the caller closes. It connects on the first call, and again after a
// crash.
func (s *Server) Connect(opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(s.DialContext),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64 << 20)),
	}, opts...)
	return grpc.NewClient("passthrough:///memcri", opts...)
}
