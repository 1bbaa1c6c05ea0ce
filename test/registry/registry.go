// Package registry runs a real image registry on loopback for tests:
// go-containerregistry's, with log-in, TLS and faults in front of it. What is pushed
// through Push is neither counted nor asked for a password.
//
// containerd asks a registry at a loopback address over plain HTTP of its own
// accord; for one with TLS it has to be given the certificate, see WriteHosts.
package registry

import (
	"cmp"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
)

// Registry is one registry at an address of its own, until the test ends. Its
// methods may be called by many goroutines; those that take a testing.TB only by the test's.
type Registry struct {
	server *httptest.Server
	// store is what the registry is without the rest.
	store  http.Handler
	blobs  blobStore
	access *access
	caFile string
	// name is the host's name in references and in its certificate, if it isn't the listener's address.
	name string
	// closing is closed when the test ends, so that nothing keeps a request.
	closing chan struct{}

	mu       sync.Mutex
	requests []Request
	failures []*Failure
	faults   map[string]*fault // by the digest of a blob
}

// blobStore holds blobs.
type blobStore interface {
	ggcr.BlobHandler
	ggcr.BlobPutHandler
}

// Kind is what a request is for.
type Kind string

// The kinds of requests that are distinguished.
const (
	Manifests Kind = "manifests"
	Blobs     Kind = "blobs"
	// Other are those for a token and for the API's version, among others.
	Other Kind = "other"
)

// Request is one request that was answered, or is being answered.
type Request struct {
	Method string
	Kind   Kind
	// Repository and Reference are what it is for: a tag or digest.
	Repository, Reference string
	// User is who asked; empty for nobody.
	User string
	// Status is that of the answer. One that broke off later has 200 or 206.
	Status int
}

// Option changes a registry from one that is open to all and has no TLS.
type Option func(testing.TB, *Registry)

// New starts a registry on a free port of 127.0.0.1.
func New(t testing.TB, options ...Option) *Registry {
	t.Helper()
	memory, ok := ggcr.NewInMemoryBlobHandler().(blobStore)
	if !ok {
		t.Fatal("the store of blobs can't be written to")
	}
	r := &Registry{blobs: memory, access: newAccess(), closing: make(chan struct{}), faults: map[string]*fault{}}
	quiet := log.New(io.Discard, "", 0)
	r.store = ggcr.New(ggcr.WithBlobHandler(r.blobs), ggcr.Logger(quiet))
	r.server = httptest.NewUnstartedServer(http.HandlerFunc(r.serve))
	r.server.Config.ErrorLog = quiet
	for _, o := range options {
		o(t, r)
	}
	if r.server.TLS != nil {
		r.server.StartTLS()
	} else {
		r.server.Start()
	}
	t.Cleanup(func() {
		close(r.closing)
		r.server.CloseClientConnections()
		r.server.Close()
	})
	return r
}

// At has the registry answer at a listener instead, by this name. It comes before WithTLS.
func At(l net.Listener, name string) Option {
	return func(t testing.TB, r *Registry) {
		t.Helper()
		if err := r.server.Listener.Close(); err != nil {
			t.Fatal(err)
		}
		r.server.Listener, r.name = l, name
	}
}

// Host is the registry's name in image references, "127.0.0.1:1234".
func (r *Registry) Host() string { return cmp.Or(r.name, r.server.Listener.Addr().String()) }

// Ref is the full reference of "repository:tag" or "repository@digest".
func (r *Registry) Ref(name string) string { return r.Host() + "/" + name }

// Requests are all requests so far, in the order in which they were answered.
func (r *Registry) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// PullCount is how often the manifest of "repository:tag" or "repository@digest" was
// had under this name, which every pull does once: by HEAD or by GET or, by digest, by both.
func (r *Registry) PullCount(name string) int {
	repository, reference := split(name)
	methods := map[string]int{}
	for _, q := range r.Requests() {
		if q.Kind == Manifests && q.Repository == repository && q.Reference == reference && q.Status == http.StatusOK {
			methods[q.Method]++
		}
	}
	return max(methods[http.MethodHead], methods[http.MethodGet])
}

// BlobPulls is how often an answer with the blob of this digest, or a part of it, was begun.
func (r *Registry) BlobPulls(digest string) int {
	n := 0
	for _, q := range r.Requests() {
		if q.Kind == Blobs && q.Method == http.MethodGet && q.Reference == digest && q.Status/100 == 2 {
			n++
		}
	}
	return n
}

// Refused is how often somebody was turned away with this status (401, 403, 429...).
func (r *Registry) Refused(status int) int {
	n := 0
	for _, q := range r.Requests() {
		if q.Status == status {
			n++
		}
	}
	return n
}

// split takes a name without host apart; the tag of one without is latest.
func split(name string) (repository, reference string) {
	if repository, digest, ok := strings.Cut(name, "@"); ok {
		return repository, digest
	}
	if repository, tag, ok := strings.Cut(name, ":"); ok {
		return repository, tag
	}
	return name, "latest"
}

// serve answers one request: refuses it, lets it fail, or has the store answer it.
func (r *Registry) serve(w http.ResponseWriter, q *http.Request) {
	about := parse(q)
	noted := &noting{ResponseWriter: w, note: func(status int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		about.Status = status
		r.requests = append(r.requests, about)
	}}
	if q.URL.Path == tokenPath {
		r.access.token(noted, q)
		return
	}
	user, isAllowed := r.access.check(noted, q, about.Repository)
	about.User = user
	if !isAllowed || r.fail(noted, about) {
		return
	}
	if about.Kind == Blobs && q.Method == http.MethodGet {
		r.blob(noted, q, about)
		return
	}
	r.store.ServeHTTP(noted, q)
}

// parse finds out what a request is for: /v2/REPOSITORY/KIND/REFERENCE.
func parse(q *http.Request) Request {
	about := Request{Method: q.Method, Kind: Other}
	path := strings.TrimPrefix(q.URL.Path, "/v2/")
	for _, kind := range []Kind{Manifests, Blobs} {
		if i := strings.LastIndex(path, "/"+string(kind)+"/"); i > 0 {
			about.Kind, about.Repository, about.Reference = kind, path[:i], path[i+len(kind)+2:]
		}
	}
	return about
}

// noting notes the status of an answer when that begins.
type noting struct {
	http.ResponseWriter
	note func(status int)
}

func (n *noting) WriteHeader(status int) {
	if n.note != nil && status >= 200 {
		n.note(status)
		n.note = nil
	}
	n.ResponseWriter.WriteHeader(status)
}

func (n *noting) Write(p []byte) (int, error) {
	if n.note != nil {
		n.WriteHeader(http.StatusOK)
	}
	return n.ResponseWriter.Write(p)
}

// Flush sends what was written so far.
func (n *noting) Flush() {
	if f, ok := n.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
}
