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

// ForwardProtocol is what a Forward speaks.
const ForwardProtocol = "portforward.k8s.io"

// ErrForwardEnded is that a session ended which carried connections to a pod.
var ErrForwardEnded = errors.New(
	"lost connection to pod: it has ended, or the agent or the container runtime has stopped")

const (
	// maxForwarded is how many connections are carried at once. Others wait until they are accepted.
	maxForwarded = 256
	// maxReason is how much is read of why a connection can't be carried.
	maxReason = 4 << 10
)

// Port is one of a pod, with that of this machine that stands for it; 0 is any.
type Port struct{ Local, Remote uint16 }

// Forward carries connections to ports of a pod, over one session.
type Forward struct {
	// Out is told what goes on, Err what is wrong, a line at a time.
	Out, Err io.Writer

	listeners []listener
	slots     chan struct{}
	carried   atomic.Int64
	// printing is held by who prints a line.
	printing sync.Mutex
}

type listener struct {
	net.Listener
	port Port
}

// Listen listens for connections to a port on all of the addresses: of "localhost", which is two, on one at least.
func (f *Forward) Listen(ctx context.Context, addresses []string, port Port) error {
	var failed error
	for _, address := range addresses {
		var errs []error
		hosts := []string{address}
		if address == "localhost" {
			hosts = []string{"127.0.0.1", "::1"}
		}
		for _, host := range hosts {
			network := "tcp6" // "tcp" would listen for both where an address is that of all
			if at, err := netip.ParseAddr(host); err == nil && at.Unmap().Is4() {
				network = "tcp4"
			}
			l, err := new(net.ListenConfig).Listen(ctx, network, net.JoinHostPort(host, strconv.Itoa(int(port.Local))))
			if err != nil {
				errs = append(errs, err)
				continue
			}
			// the one that was chosen is it for the other addresses, too
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

// Close gives up the ports, if Run wasn't called.
func (f *Forward) Close() {
	for _, l := range f.listeners {
		l.Close()
	}
}

// Run carries connections until ctx ends, for which it returns nil, or the session does.
func (f *Forward) Run(ctx context.Context, conn httpstream.Connection) error {
	f.slots = make(chan struct{}, maxForwarded)
	// Connections end with the session. What the caller cancels may close conn before ctx, which follows, is done.
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

// Fail tells of an error that isn't the end.
func (f *Forward) Fail(err error) { f.print(f.Err, "error: "+terminal.Keep(err.Error())) }

func (f *Forward) print(to io.Writer, line string) {
	f.printing.Lock()
	defer f.printing.Unlock()
	_, _ = io.WriteString(to, line+"\n") // who reads it may have left
}

// carry carries one connection, which has two streams: for what comes and goes, and for what is wrong.
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
	wrong.Close() // nothing is said on it
	var copies sync.WaitGroup
	var reason []byte
	// What comes is read at once: until then, no other connection gets what is its own.
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
		_, _ = io.Copy(data, c) // who doesn't take it says so on the other stream, or ends the connection
		data.Close()
	})
	_, local := io.Copy(c, data)
	c.Close()
	if local != nil {
		_ = data.Reset() // what is still to come has nobody who reads it
	}
	copies.Wait()
	if len(reason) == 0 {
		return nil
	}
	return errors.New(strings.TrimSpace(string(reason)))
}
