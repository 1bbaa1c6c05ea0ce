package secure

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	authentication "k8s.io/api/authentication/v1"

	"github.com/deckhand-node/deckhand/internal/server"
)

// Route is one thing that can be asked of the server. What isn't in its table isn't served.
type Route struct {
	// Methods are those of HTTP; HEAD is part of GET.
	Methods []string
	// Path is a pattern of http.ServeMux.
	Path string
	// Subresources are those of the node that whoever asks needs a right to: to one of them.
	Subresources []string
	// Off says why it isn't served, if it isn't.
	Off string
	// Stream reports whether an answer takes as long as it takes (server.Stream); nil for never.
	Stream func(*http.Request) bool
	// Body is how large the body of a request may be. Where it is 0, none is read.
	Body    int64
	Handler http.Handler
}

// Always is a Route.Stream.
func Always(*http.Request) bool { return true }

const (
	// maxStreams is how many streams there are at once, maxStreamsOfOne how many of them are one user's: of API
	// servers, who speak for everybody, most come. So that none of those they speak for takes all, no more than these
	// are to the pods of one namespace, and to one pod.
	maxStreams            = 1024
	maxStreamsOfOne       = 960
	maxStreamsOfNamespace = 640
	maxStreamsOfPod       = 320
)

// nowhere is what isn't in the table.
var nowhere = Route{Subresources: []string{"proxy"}, Handler: http.NotFoundHandler()}

// serve is the one way to a handler: every request is matched with the table, and nobody comes by the guard.
func serve(c Config) http.Handler {
	routes := map[string]*Route{}
	mux, streams := http.NewServeMux(), &streams{of: map[string]int{}}
	for i := range c.Routes {
		route := &c.Routes[i]
		for _, m := range route.Methods {
			pattern := m + " " + route.Path
			routes[pattern] = route
			// The handler of the mux finds the values in the path, and is told who asks.
			mux.Handle(pattern, traced(c.Tracer, pattern,
				http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { route.audited(w, r, streams, c.Log) })))
		}
	}
	guards := map[*Route]http.Handler{}
	guarded := func(route *Route) http.Handler {
		return c.Access.guard(route.Subresources,
			func(w http.ResponseWriter, r *http.Request, u *authentication.UserInfo) {
				mux.ServeHTTP(w, r.WithContext(withUser(r.Context(), u.Username)))
			})
	}
	for _, route := range routes {
		guards[route] = guarded(route)
	}
	elsewhere := guarded(&nowhere)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := mux.Handler(r)
		route := routes[pattern]
		if route == nil { // the mux may have an answer to that, such as the path that is meant
			defer c.Meter.Begin(r.Method, "", false)()
			elsewhere.ServeHTTP(w, r)
			return
		}
		defer c.Meter.Begin(r.Method, route.Path, route.streams(r))()
		guards[route].ServeHTTP(w, r)
	})
}

// traced has the requests of a pattern be traced. Whoever asks has been let in: others can't have traces made.
func traced(tracer trace.TracerProvider, pattern string, next http.Handler) http.Handler {
	if tracer == nil {
		return next
	}
	spans := tracer.Tracer("github.com/deckhand-node/deckhand/internal/server/secure")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, span := spans.Start(propagation.TraceContext{}.Extract(r.Context(), propagation.HeaderCarrier(r.Header)),
			pattern, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Admitted serves a table to clients whom somebody else has let in: as who is what user says. Their streams are counted
// by themselves, and so keep nobody from the HTTPS server's, and are kept by nobody there from theirs.
func Admitted(table []Route, user func(context.Context) string, log logr.Logger) http.Handler {
	mux, streams := http.NewServeMux(), &streams{of: map[string]int{}}
	for i := range table {
		route := &table[i]
		for _, m := range route.Methods {
			mux.HandleFunc(m+" "+route.Path, func(w http.ResponseWriter, r *http.Request) {
				route.audited(w, r.WithContext(withUser(r.Context(), user(r.Context()))), streams, log)
			})
		}
	}
	return mux
}

type userKey struct{}

func withUser(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, userKey{}, name)
}

// UserOf is the name of who asks, in the context of a request that is served.
func UserOf(ctx context.Context) string {
	name, _ := ctx.Value(userKey{}).(string)
	return name
}

func (route *Route) streams(r *http.Request) bool { return route.Stream != nil && route.Stream(r) }

// audited serves a request, and records it if it is for a stream or changes something: who did it from where, and what
// came of it. What for isn't told: that may be secret.
func (route *Route) audited(w http.ResponseWriter, r *http.Request, s *streams, log logr.Logger) {
	if !route.streams(r) && verb(r.Method) == "get" {
		route.serve(w, r, s)
		return
	}
	began, answer := time.Now(), &answerWriter{ResponseWriter: w}
	path := r.URL.Path
	if len(path) > maxAudited {
		path = path[:maxAudited] + "..."
	}
	defer func() {
		log.Info("A request was served", "method", r.Method, "path", path, "user", UserOf(r.Context()),
			"address", r.RemoteAddr, "status", answer.status, "duration", time.Since(began))
	}()
	route.serve(answer, r, s)
}

// maxAudited is how much of a path is recorded.
const maxAudited = 512

// answerWriter knows the status of an answer; 0 for none.
type answerWriter struct {
	http.ResponseWriter
	status int
}

// Unwrap is for http.ResponseController.
func (a *answerWriter) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (a *answerWriter) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (a *answerWriter) Write(b []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(b)
}

// Hijack implements http.Hijacker: streams are what is taken over for.
func (a *answerWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, b, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.status = http.StatusSwitchingProtocols
	}
	return c, b, err
}

func (route *Route) serve(w http.ResponseWriter, r *http.Request, s *streams) {
	switch {
	case route.Off != "":
		http.Error(w, route.Off, http.StatusMethodNotAllowed)
	case route.streams(r):
		end, err := s.begin(r)
		if err != nil {
			w.Header().Set("Retry-After", "10")
			http.Error(w, err.Error(), http.StatusTooManyRequests)
			return
		}
		defer end()
		server.Stream(route.Handler).ServeHTTP(w, r)
	case route.Body > 0:
		// it can't fail on a connection of ours
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		r.Body = http.MaxBytesReader(w, r.Body, route.Body)
		route.Handler.ServeHTTP(w, r)
	default:
		route.Handler.ServeHTTP(w, r)
	}
}

// streams counts those that are served.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// begin takes the request in as a stream, which end says the end of, unless there are too many.
func (s *streams) begin(r *http.Request) (end func(), err error) {
	namespace, pod := r.PathValue("namespace"), r.PathValue("pod")
	type bound struct {
		whose string
		most  int
	}
	bounds := []bound{{fmt.Sprintf("user %q", UserOf(r.Context())), maxStreamsOfOne}}
	if pod != "" {
		bounds = append(bounds, bound{fmt.Sprintf("namespace %q", namespace), maxStreamsOfNamespace},
			bound{fmt.Sprintf("pod %q in namespace %q", pod, namespace), maxStreamsOfPod})
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStreams {
		return nil, fmt.Errorf("there are too many streams: %d are served at once", maxStreams)
	}
	for _, b := range bounds {
		if s.of[b.whose] >= b.most {
			return nil, fmt.Errorf("there are too many streams of %s: %d are served at once", b.whose, b.most)
		}
	}
	s.all++
	for _, b := range bounds {
		s.of[b.whose]++
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		for _, b := range bounds {
			if s.of[b.whose]--; s.of[b.whose] == 0 {
				delete(s.of, b.whose)
			}
		}
	}, nil
}
