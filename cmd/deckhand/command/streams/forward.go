package streams

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// ForwardProtocol is the subprotocol of Forward.
const ForwardProtocol = "portforward.k8s.io"

// ErrForwardEnded means that the session with the pod ended.
var ErrForwardEnded = errors.New(
	"lost connection to pod: it has ended, or the agent or the container runtime has stopped")

const (
	// maxForwarded is the maximum number of concurrent connections. Further ones wait to be accepted.
	maxForwarded = 256
	// maxReason is the maximum number of bytes that are read of a connection's error.
	maxReason = 4 << 10
)

// Port is a port of a pod (Remote) and the local port that is forwarded to it; Local is 0 for any free port.
type Port struct{ Local, Remote uint16 }

// Forward forwards connections to ports of a pod, over one session.
type Forward struct {
	// Out receives status messages, Err errors, one line at a time.
	Out, Err io.Writer

	listeners []listener
	slots     chan struct{}
	carried   atomic.Int64
	// printing is held while a line is printed.
	printing sync.Mutex
}

type listener struct {
	net.Listener
	port Port
}

// Listen listens for connections to a port on all of the addresses. The name "localhost" has two addresses; one of
// them suffices.
func (f *Forward) Listen(ctx context.Context, addresses []string, port Port) error {
	var failed error
	for _, address := range addresses {
		var errs []error
		hosts := []string{address}
		if address == "localhost" {
			hosts = []string{"127.0.0.1", "::1"}
		}
		for _, host := range hosts {
			network := "tcp6" // "tcp" would listen on both families for an unspecified address
			if at, err := netip.ParseAddr(host); err == nil && at.Unmap().Is4() {
				network = "tcp4"
			}
			l, err := new(net.ListenConfig).Listen(ctx, network, net.JoinHostPort(host, strconv.Itoa(int(port.Local))))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			// all addresses use the port that was chosen first
			port.Local = uint16(l.Addr().(*net.TCPAddr).Port)
			f.listeners = append(f.listeners, listener{l, port})
			f.print(f.Out, fmt.Sprintf("Forwarding from %s -> %d", l.Addr(), port.Remote))
		}
		if len(errs) == len(hosts) {
			failed = errors.Join(append([]error{failed}, errs...)...)
		}
	}
	return failed
}

// Close closes the listeners, if Run wasn't called.
func (f *Forward) Close() {
	for _, l := range f.listeners {
		l.Close()
	}
}

// Run forwards connections until ctx ends, for which it returns nil, or until the session ends.
func (f *Forward) Run(ctx context.Context, conn httpstream.Connection) error {
	f.slots = make(chan struct{}, maxForwarded)
	// Connections end with the session. A cancellation by the caller may close conn before the derived ctx is done.
	caller := ctx
	ctx, end := context.WithCancel(ctx)
	defer end()
	var serving sync.WaitGroup
	for _, l := range f.listeners {
		serving.Go(func() { f.accept(ctx, conn, l, &serving) })
	}
	lost := false
	select {
	case <-ctx.Done():
	case <-conn.CloseChan():
		lost = caller.Err() == nil
	}
	end()
	f.Close()
	conn.Close()
	serving.Wait()
	if lost {
		return ErrForwardEnded
	}
	return nil
}

func (f *Forward) accept(ctx context.Context, conn httpstream.Connection, l listener, serving *sync.WaitGroup) {
	for {
		select {
		case <-ctx.Done():
			return
		case f.slots <- struct{}{}:
		}
		c, err := l.Accept()
		if err != nil {
			<-f.slots
			if ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				f.Fail(fmt.Errorf("accept a connection on port %d: %w", l.port.Local, err))
			}
			return
		}
		serving.Go(func() {
			defer func() { <-f.slots }()
			defer context.AfterFunc(ctx, func() { c.Close() })()
			defer c.Close()
			f.print(f.Out, fmt.Sprintf("Handling connection for %d", l.port.Local))
			if err := f.carry(conn, c, l.port.Remote); err != nil && ctx.Err() == nil {
				f.Fail(fmt.Errorf("forward %d -> %d: %w", l.port.Local, l.port.Remote, err))
			}
		})
	}
}

// Fail prints a non-fatal error.
func (f *Forward) Fail(err error) { f.print(f.Err, "error: "+terminal.Keep(err.Error())) }

func (f *Forward) print(to io.Writer, line string) {
	f.printing.Lock()
	defer f.printing.Unlock()
	_, _ = io.WriteString(to, line+"\n") // the reader may be gone
}

// carry forwards one connection, with two streams: one for data and one for errors.
func (f *Forward) carry(conn httpstream.Connection, c net.Conn, port uint16) error {
	id := strconv.FormatInt(f.carried.Add(1), 10)
	header := http.Header{}
	header.Set(v1.StreamType, v1.StreamTypeError)
	header.Set(v1.PortHeader, strconv.Itoa(int(port)))
	header.Set(v1.PortForwardRequestIDHeader, id)
	wrong, err := conn.CreateStream(header)
	if err != nil {
		return fmt.Errorf("open a stream: %w", err)
	}
	defer conn.RemoveStreams(wrong)
	wrong.Close() // the error stream is only read
	var copies sync.WaitGroup
	var reason []byte
	// Read the errors at once: until then, other connections may get no data.
	copies.Go(func() {
		reason, _ = io.ReadAll(io.LimitReader(wrong, maxReason))
		_, _ = io.Copy(io.Discard, wrong)
	})
	header.Set(v1.StreamType, v1.StreamTypeData)
	data, err := conn.CreateStream(header)
	if err != nil {
		_ = wrong.Reset()
		copies.Wait()
		return fmt.Errorf("open a stream: %w", err)
	}
	defer conn.RemoveStreams(data)
	copies.Go(func() {
		_, _ = io.Copy(data, c) // if the peer refuses it, the error stream has the reason, or the connection ends
		data.Close()
	})
	_, local := io.Copy(c, data)
	c.Close()
	if local != nil {
		_ = data.Reset() // nobody reads the remaining data
	}
	copies.Wait()
	if len(reason) == 0 {
		return nil
	}
	return errors.New(strings.TrimSpace(string(reason)))
}
