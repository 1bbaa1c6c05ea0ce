// Package memcri is a container runtime that runs nothing: a CRI server that
// keeps sandboxes, containers and images in memory and otherwise behaves like
// containerd 2.4. It exists for tests and measurements.
//
// It is held to the same contract suite as containerd (internal/runtime/critest).
// It differs on purpose in one place: where a reader of the event stream falls
// behind, containerd holds up every call that causes an event, while memcri
// drops events past Options.EventQueue and counts them.
//
// Time is taken from package time, so that a server used through DialContext
// without a socket can live in a testing/synctest bubble.
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

// Behaviour says what a container does once it is started.
type Behaviour = node.Behaviour

// Line is a line a container writes to its log.
type Line = node.Line

// Forever is a Behaviour.IgnoreTerm that only SIGKILL ends.
const Forever = node.Forever

// ExecResult is what came of a command run in a container.
type ExecResult = node.ExecResult

// Options shape a Server. The zero value is a good default.
type Options struct {
	// PodCIDR is the IPv4 network sandboxes get addresses from; default 10.88.0.0/16.
	PodCIDR string
	// Images are present from the start.
	Images []string
	// WriteLogs makes the log files that CreateContainer names, at the start of
	// the container, with what its Behaviour says.
	WriteLogs bool
	// Program says what a container does whose name, image and command have no
	// Behaviour set; default node.Example.
	Program func(command []string) Behaviour
	// EventQueue is how many events each reader of the event stream, or the
	// next one, may fall behind before it misses some; default 10,000.
	EventQueue int
	// CgroupDriver is what RuntimeConfig reports; default SYSTEMD, the zero value.
	CgroupDriver runtimeapi.CgroupDriver
}

// Server is the runtime with its controls. Its state outlives the connections:
// see Crash and Reboot. All methods may be called concurrently.
type Server struct {
	// Injector scripts faults and counts calls, by method name ("RunPodSandbox").
	*node.Injector
	// Images are the images the runtime has and the ways their pulls go.
	Images *node.Store

	// Node is what the runtime runs, with the controls over it: Exit, Behave,
	// DropEvents, Violations and others. Its CRI methods may be called directly;
	// neither faults nor counters apply then.
	*node.Node

	mu     sync.Mutex // guards what follows: serving
	socket string
	buffer *bufconn.Listener
	grpc   *grpc.Server
	served chan struct{}
}

// New makes a Server that doesn't serve yet. It fails when an option is invalid.
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

// Start serves on a unix socket, replacing a stale one, with mode 0600. An empty
// path serves in process only: see DialContext.
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
		// Serve only fails here because of Stop, or with the listener it is
		// about to lose; clients see either as a lost connection.
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

// Close stops serving and everything that runs. The Server can't be used again.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.EndStreams()
	s.halt()
	s.Node.Close()
}

// Crash drops every connection and serves no more until Restart, as when the
// runtime's process dies. What runs keeps running; what ends meanwhile ends
// without an event and with the exit code 255, Unknown, as with containerd.
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

// Restart serves again after Crash, at the same place.
func (s *Server) Restart() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.grpc != nil {
		return errors.New("memcri is serving, so it can't be restarted")
	}
	return s.serve()
}

// CrashAndRestart is Crash and Restart.
func (s *Server) CrashAndRestart() error {
	s.Crash()
	return s.Restart()
}

// Reboot is what a reboot of the node looks like: connections drop, and when the
// runtime serves again every sandbox is NotReady without an address, and every
// container that ran has exited with 255 and the reason Unknown.
func (s *Server) Reboot() error {
	s.Crash()
	s.Node.Reboot()
	return s.Restart()
}

// DialContext connects to the server, over the socket or in process. It is what
// grpc.WithContextDialer wants; the address is ignored.
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

// Connect returns a client connection, which the caller closes. It connects
// lazily, and again after a crash.
func (s *Server) Connect(opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	opts = append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(s.DialContext),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64 << 20)),
	}, opts...)
	return grpc.NewClient("passthrough:///memcri", opts...)
}
