package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
)

// Limits of a connection. Clients are on this host or in its network, but a slow or stuck one must not hold memory
// for long.
const (
	readHeaderTimeout = 5 * time.Second
	readTimeout       = 10 * time.Second
	writeTimeout      = 30 * time.Second
	idleTimeout       = 60 * time.Second
	maxHeaderBytes    = 16 << 10
	// maxConns is how many connections one listener serves at once (see listener). Any user of the host may connect,
	// and each connection costs memory and a file descriptor.
	maxConns = 128
)

// shutdownTimeout is how long requests in flight may take when the server stops.
const shutdownTimeout = 2 * time.Second

// Listener is one address and its handler.
type Listener struct {
	// Name identifies the listener in logs and errors: "healthz".
	Name string
	// Addr is the address; with port 0 the system picks a port.
	Addr netip.AddrPort
	// Setting is the name of the setting that changes the address.
	Setting string
	Handler http.Handler
	// Names returns the node's names and addresses; the Host header of a request has to match one of them. It is nil
	// for a listener whose clients authenticate: a script in a browser can't do that.
	Names func() []string
	// MaxHeader limits the size of a request line with its headers, in bytes; 0 means maxHeaderBytes.
	MaxHeader int
	// TLS enables HTTPS; nil means HTTP. Load is called before clients can connect, and by Server.Reload; it may be
	// nil.
	TLS  *tls.Config
	Load func()
}

// Server serves a set of listeners.
type Server struct {
	log       logr.Logger
	listeners []Listener
	reloading sync.Mutex // held by Reload
	ready     chan struct{}
	addrs     map[string]netip.AddrPort // written before ready is closed
}

// New returns a server for the listeners. It doesn't listen yet.
func New(log logr.Logger, listeners ...Listener) *Server {
	return &Server{log: log, listeners: listeners, ready: make(chan struct{}), addrs: map[string]netip.AddrPort{}}
}

// Ready is closed when all listeners accept connections.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Addr returns the address of a listener. It waits until Ready is closed.
func (s *Server) Addr(name string) netip.AddrPort {
	<-s.ready
	return s.addrs[name]
}

// Run listens on all addresses, or fails and listens on none, and serves until ctx ends. Then it stops the listeners
// in reverse order, gives requests in flight at most shutdownTimeout, closes the remaining connections and waits for
// all handlers. It may be called once.
func (s *Server) Run(ctx context.Context) error {
	opened, err := s.listen(ctx)
	if err != nil {
		return err
	}
	// Requests outlive ctx by the time of the graceful shutdown.
	requests, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()

	// Streams end when the shutdown begins.
	requests = context.WithValue(requests, stoppingKey{}, ctx)

	var serving, conns, handlers sync.WaitGroup
	failed := make(chan error, len(opened))
	servers := make([]*http.Server, len(opened))
	for i, l := range s.listeners {
		h := l.Handler
		if l.TLS != nil {
			h = s.telling(h)
		}
		if l.Names != nil {
			h = sameHost(l.Names, h)
		}
		servers[i] = s.httpServer(requests, counted(h, &handlers), &conns)
		if l.MaxHeader > 0 {
			servers[i].MaxHeaderBytes = l.MaxHeader
		}
		if l.TLS != nil { // any client can cause failed handshakes: log them at debug level
			servers[i].ErrorLog = slog.NewLogLogger(logr.ToSlogHandler(s.log), slog.LevelDebug)
		}
		serving.Go(func() {
			if err := servers[i].Serve(opened[i]); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("serving %s on %s: %w", l.Name, opened[i].Addr(), err)
			}
		})
		s.log.V(2).Info("Serving", "name", l.Name, "address", opened[i].Addr().String())
	}
	close(s.ready)

	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	shutdown(servers, cancel)
	// When Serve has returned, no new connections are added to conns: its counter only falls.
	serving.Wait()
	conns.Wait()
	// A hijacked connection leaves conns while its handler still runs, so handlers counts the running handlers.
	handlers.Wait()
	return err
}

func counted(h http.Handler, handlers *sync.WaitGroup) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		handlers.Add(1)
		defer handlers.Done()
		h.ServeHTTP(w, r)
	})
}

// telling logs panics of h as errors, because a server with TLS logs its own messages at debug level only. After a
// panic it aborts the connection, so that a partly sent answer doesn't look complete.
func (s *Server) telling(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p != http.ErrAbortHandler {
				s.log.Error(fmt.Errorf("panic: %v\n%s", p, debug.Stack()), "Request failed", "path", r.URL.Path)
			}
			panic(http.ErrAbortHandler)
		}()
		h.ServeHTTP(w, r)
	})
}

// Reload loads what listeners need, such as certificates. It is called by the Server at its start, and again after the
// clock was set, even before that start.
func (s *Server) Reload() {
	s.reloading.Lock()
	defer s.reloading.Unlock()
	for _, l := range s.listeners {
		if l.Load != nil {
			l.Load()
		}
	}
}

// listen opens all listeners, or none.
func (s *Server) listen(ctx context.Context) ([]net.Listener, error) {
	var opened []net.Listener
	lc := net.ListenConfig{Control: acceptWithData}
	s.Reload()
	for _, l := range s.listeners {
		ln, err := lc.Listen(ctx, "tcp", l.Addr.String())
		if err != nil {
			for _, o := range opened {
				o.Close()
			}
			return nil, listenError(l, err)
		}
		limited := newListener(ln)
		limited.encrypted = l.TLS != nil
		if l.TLS != nil {
			opened = append(opened, tls.NewListener(limited, l.TLS))
		} else {
			opened = append(opened, limited)
		}
		s.addrs[l.Name] = netip.AddrPortFrom(l.Addr.Addr(), uint16(ln.Addr().(*net.TCPAddr).Port))
	}
	return opened, nil
}

// listenError adds a hint to errors that have a common cause.
func listenError(l Listener, err error) error {
	hint := "change " + l.Setting
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		hint = "another program (a kubelet, or another agent) has this port: stop it, or " + hint
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		hint = "no network interface has this address: " + hint
	}
	return fmt.Errorf("%s can't be served: %w; %s", l.Name, err, hint)
}

func (s *Server) httpServer(ctx context.Context, h http.Handler, conns *sync.WaitGroup) *http.Server {
	return &http.Server{
		Handler:           atWork(h),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext:       withConn,
		ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(s.log), slog.LevelError),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		HTTP2:             &http.HTTP2Config{MaxConcurrentStreams: maxSharing},
		ConnState: func(c net.Conn, state http.ConnState) {
			under(c).state(state)
			switch state {
			case http.StateNew:
				conns.Add(1)
			case http.StateClosed, http.StateHijacked:
				conns.Done()
			}
		},
	}
}

// shutdown stops the servers, last first, within shutdownTimeout in total. Then it cancels the handlers that still
// run, and closes their connections.
func shutdown(servers []*http.Server, cancel context.CancelFunc) {
	ctx, stop := context.WithTimeout(context.Background(), shutdownTimeout)
	defer stop()
	var late []*http.Server
	for _, srv := range slices.Backward(servers) {
		if srv.Shutdown(ctx) != nil {
			late = append(late, srv)
		}
	}
	cancel()
	for _, srv := range late {
		srv.Close() // returns only errors of connections that are gone
	}
}
