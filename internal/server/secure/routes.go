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

// Route is an entry of the server's table. Other paths aren't served.
type Route struct {
	// Methods are HTTP methods; GET includes HEAD.
	Methods []string
	// Path is a pattern of http.ServeMux.
	Path string
	// Subresources are subresources of the node object. A user of the route has to be authorized for one of them.
	Subresources []string
	// Off is the error message of a disabled route; empty if the route is enabled.
	Off string
	// Stream reports whether a request is a stream, without time limits (server.Stream); nil means never.
	Stream func(*http.Request) bool
	// Body is the maximum size of a request's body in bytes. If it is 0, no body is read.
	Body    int64
	Handler http.Handler
}

// Always is a Route.Stream that returns true.
func Always(*http.Request) bool { return true }

const (
	// maxStreams limits the concurrent streams, and maxStreamsOfOne the concurrent streams of one user. API servers
	// open most streams with one user name, on behalf of their own users. So streams are also limited per namespace and
	// per pod: then a single one of these users can't use up all streams.
	maxStreams            = 1024
	maxStreamsOfOne       = 960
	maxStreamsOfNamespace = 640
	maxStreamsOfPod       = 320
)

// nowhere is the route of requests that match no other route.
var nowhere = Route{Subresources: []string{"proxy"}, Handler: http.NotFoundHandler()}

// serve is the only way to a handler: it matches every request with the table and applies the guard.
func serve(c Config) http.Handler {
	routes := map[string]*Route{}
	mux, streams := http.NewServeMux(), &streams{of: map[string]int{}}
	for i := range c.Routes {
		route := &c.Routes[i]
		for _, m := range route.Methods {
			pattern := m + " " + route.Path
			routes[pattern] = route
			// The mux calls the handler, because the mux sets the path values. The request's context has the user.
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
		if route == nil { // the mux answers with 404, or with a redirect to the clean path
			defer c.Meter.StartRequest(r.Method, "", false)()
			elsewhere.ServeHTTP(w, r)
			return
		}
		defer c.Meter.StartRequest(r.Method, route.Path, route.streams(r))()
		guards[route].ServeHTTP(w, r)
	})
}

// traced starts a span per request, after authorization: unauthorized clients must not create traces.
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

// Admitted serves routes to clients that the caller has authenticated; user returns the user's name. Their streams
// are counted separately from the HTTPS server's, so that neither server's clients use up the other's limits.
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

// UserOf returns the name of the user, from the context of a request.
func UserOf(ctx context.Context) string {
	name, _ := ctx.Value(userKey{}).(string)
	return name
}

func (route *Route) streams(r *http.Request) bool { return route.Stream != nil && route.Stream(r) }

// audited serves a request. If the request is a stream or changes something, audited logs it with its user, address and
// status, but without its query and body, which may be secret.
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

// maxAudited is the maximum length of a path in the log, in bytes. Longer paths are cut.
const maxAudited = 512

// answerWriter records the HTTP status of an answer; 0 before an answer is written.
type answerWriter struct {
	http.ResponseWriter
	status int
}

// Unwrap supports http.ResponseController.
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

// Hijack implements http.Hijacker. Connections are hijacked for upgrades to streams.
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
		end, err := s.start(r)
		if err != nil {
			w.Header().Set("Retry-After", "10")
			http.Error(w, err.Error(), http.StatusTooManyRequests)
			return
		}
		defer end()
		server.Stream(route.Handler).ServeHTTP(w, r)
	case route.Body > 0:
		// can't fail on a *conn of package server
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout))
		r.Body = http.MaxBytesReader(w, r.Body, route.Body)
		route.Handler.ServeHTTP(w, r)
	default:
		route.Handler.ServeHTTP(w, r)
	}
}

// streams counts the concurrent streams.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[string]int
}

// start counts a stream; the function end, which it returns, releases the stream. It fails if there are too many.
func (s *streams) start(r *http.Request) (end func(), err error) {
	namespace, pod := r.PathValue("namespace"), r.PathValue("pod")
	type bound struct {
		key  string
		most int
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
		if s.of[b.key] >= b.most {
			return nil, fmt.Errorf("there are too many streams of %s: %d are served at once", b.key, b.most)
		}
	}
	s.all++
	for _, b := range bounds {
		s.of[b.key]++
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all--
		for _, b := range bounds {
			if s.of[b.key]--; s.of[b.key] == 0 {
				delete(s.of, b.key)
			}
		}
	}, nil
}
