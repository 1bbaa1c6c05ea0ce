package secure

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

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
	// maxStreams is how many streams there are at once, maxStreamsOfOne how many of them are one user's: of API servers, who
	// speak for everybody, most come.
	maxStreams      = 1024
	maxStreamsOfOne = 960
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
			mux.Handle(pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { route.serve(w, r, streams) }))
		}
	}
	guards := map[*Route]http.Handler{}
	guarded := func(route *Route) http.Handler {
		return c.Access.guard(route.Subresources, func(w http.ResponseWriter, r *http.Request, u *authentication.UserInfo) {
			mux.ServeHTTP(w, r.WithContext(withUser(r.Context(), u)))
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

type userKey struct{}

func withUser(ctx context.Context, u *authentication.UserInfo) context.Context {
	return context.WithValue(ctx, userKey{}, u.Username)
}

// UserOf is the name of who asks, in the context of a request that is served.
func UserOf(ctx context.Context) string {
	name, _ := ctx.Value(userKey{}).(string)
	return name
}

func (route *Route) streams(r *http.Request) bool { return route.Stream != nil && route.Stream(r) }

func (route *Route) serve(w http.ResponseWriter, r *http.Request, s *streams) {
	switch {
	case route.Off != "":
		http.Error(w, route.Off, http.StatusMethodNotAllowed)
	case route.streams(r):
		user := UserOf(r.Context())
		if !s.begin(user) {
			w.Header().Set("Retry-After", "10")
			http.Error(w, fmt.Sprintf("there are too many streams: %d of all users and %d of one are served at once", maxStreams, maxStreamsOfOne), http.StatusTooManyRequests)
			return
		}
		defer s.end(user)
		server.Stream(route.Handler).ServeHTTP(w, r)
	case route.Body > 0:
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // it can't fail on a connection of ours
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

func (s *streams) begin(user string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStreams || s.of[user] >= maxStreamsOfOne {
		return false
	}
	s.all++
	s.of[user]++
	return true
}

func (s *streams) end(user string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[user]--; s.of[user] == 0 {
		delete(s.of, user)
	}
}
