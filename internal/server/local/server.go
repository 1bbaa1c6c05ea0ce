package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
)

const (
	// headerTimeout is how long a client may take to send a request's header.
	headerTimeout = 10 * time.Second
	idleTimeout   = time.Minute
	// shutdownTime is how long streams may take to end when the server stops.
	shutdownTime = time.Second
)

// MaxHeader is the maximum size in bytes of a request line with its headers, for the local API and the HTTPS server.
// The URL may have a command as long as Linux permits for one argument (128 KiB), with each byte escaped.
const MaxHeader = 3*128<<10 + 16<<10

// Server serves the local API.
type Server struct {
	agent    Agent
	images   Images
	logs     *logs.Reader
	sessions http.Handler
	pages    map[string]http.Handler
	log      logr.Logger
	// ownUID is the agent's own user, which may use the API like root.
	ownUID uint32
}

// NewServer returns a server for agent and its images. It reads container logs with logs. It also serves sessions in
// pods (exec, attach, portForward) at the kubelet's paths, and pages, which are the web server's pages by path.
func NewServer(agent Agent, images Images, logs *logs.Reader, sessions http.Handler, pages map[string]http.Handler,
	log logr.Logger) *Server {
	return &Server{agent: agent, images: images, logs: logs, sessions: sessions, pages: pages, log: log,
		ownUID: uint32(os.Geteuid())}
}

// Serve serves a listener from [Listen] until ctx ends, and then waits for every request to end. It closes the
// listener, and returns nil after ctx has ended.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	var requests sync.WaitGroup
	requestCtx, cancel := context.WithCancel(ctx)
	defer cancel()
	handler := s.handler()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			defer requests.Done()
			handler.ServeHTTP(w, r)
		}),
		BaseContext:       func(net.Listener) context.Context { return requestCtx },
		ConnContext:       withPeer,
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    MaxHeader,
		ErrorLog:          slog.NewLogLogger(logr.ToSlogHandler(s.log), slog.LevelError),
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-requestCtx.Done()
		grace, done := context.WithTimeout(context.WithoutCancel(requestCtx), shutdownTime)
		defer done()
		if server.Shutdown(grace) != nil {
			_ = server.Close() // a client doesn't read its answer
		}
	}()
	err := server.Serve(listener)
	cancel()
	<-stopped
	requests.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the local API: %w", err)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, handle := range map[string]func(http.ResponseWriter, *http.Request) error{
		"GET /v1/snapshot":        s.snapshot,
		"GET /v1/watch":           s.watch,
		"GET /v1/images":          s.listImages,
		"POST /v1/images/pull":    s.pullImage,
		"POST /v1/images/import":  s.importImages,
		"GET /v1/images/save":     s.saveImages,
		"POST /v1/images/tag":     s.tagImage,
		"POST /v1/images/remove":  s.removeImage,
		"POST /v1/images/prune":   s.pruneImages,
		"GET /v1/events":          s.events,
		"GET /v1/events/watch":    s.watchEvents,
		"GET /v1/logs":            s.podLogs,
		"GET /v1/why":             s.why,
		"GET /v1/journal":         s.journal,
		"GET /v1/journal/node":    s.nodeJournal,
		"POST /v1/run":            s.run,
		"POST /v1/pods/stop":      s.stopPods,
		"POST /v1/pods/start":     s.startPods,
		"POST /v1/pods/debug":     s.addContainer,
		"GET /v1/volumes":         s.volumes,
		"POST /v1/volumes/forget": s.forgetVolume,
		"POST /v1/down":           s.down,
		"GET /v1/node":            s.node,
		"GET /v1/config":          s.config,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if err := handle(w, r); err != nil {
				s.fail(w, r, err)
			}
		})
	}
	for _, path := range []string{execPath, attachPath, portForwardPath} {
		mux.Handle("POST "+path+"/", s.sessions)
	}
	for path, page := range s.pages {
		mux.Handle("GET "+path, page)
	}
	return s.authorize(mux)
}

// peerKey is the context key of the client's UID (SO_PEERCRED), or of the error if that can't be read.
type peerKey struct{}

func withPeer(ctx context.Context, c net.Conn) context.Context {
	uid, err := socket.PeerUID(c)
	if err != nil {
		return context.WithValue(ctx, peerKey{}, err)
	}
	return context.WithValue(ctx, peerKey{}, uid)
}

// UserOf returns the client's user on this machine as "uid N", from the context of a request.
func UserOf(ctx context.Context) string { return fmt.Sprintf("uid %v", ctx.Value(peerKey{})) }

// authorize admits root and the agent's own user. The socket's mode excludes others already; this check holds even if
// the mode is changed.
func (s *Server) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch peer := r.Context().Value(peerKey{}).(type) {
		case uint32:
			if peer == 0 || peer == s.ownUID {
				next.ServeHTTP(w, r)
				return
			}
			s.fail(w, r, &StatusError{http.StatusForbidden,
				fmt.Errorf("user %d may not use the agent's local API: only root and the agent's own user may", peer)})
		default:
			s.fail(w, r, &StatusError{http.StatusForbidden, fmt.Errorf("can't determine the caller's user: %v", peer)})
		}
	})
}

// fail answers with an error. Nothing may have been written to w before.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusInternalServerError
	var status *StatusError
	switch {
	case errors.As(err, &status):
		code = status.Code
	case r.Context().Err() != nil:
		code, err = http.StatusServiceUnavailable, errors.New("the agent is stopping")
	case atomicfile.DiskFull(err):
		code, err = http.StatusInsufficientStorage, room.Explain(err)
	default:
		s.log.Error(err, "Local API request failed", "path", r.URL.Path)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// An error means that the client is gone.
	_ = json.NewEncoder(w).Encode(errorBody{Message: err.Error()})
}

// errorBody is an error in the API's answers.
type errorBody struct {
	Message string `json:"message"`
}

func answer(w http.ResponseWriter, body any) error {
	w.Header().Set("Content-Type", "application/json")
	return ignoreGone(json.NewEncoder(w).Encode(body))
}
