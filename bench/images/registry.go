package images

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	ggcr "github.com/google/go-containerregistry/pkg/registry"
)

// registry is an image registry on loopback that counts pulls.
type registry struct {
	store  http.Handler
	server *http.Server
	host   string
	ended  chan error

	mu   sync.Mutex
	asks map[string]int // for manifests, by image
}

func startRegistry() (*registry, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	quiet := log.New(io.Discard, "", 0)
	r := &registry{store: ggcr.New(ggcr.Logger(quiet)), host: l.Addr().String(), ended: make(chan error, 1), asks: map[string]int{}}
	r.server = &http.Server{Handler: http.HandlerFunc(r.serve), ReadHeaderTimeout: time.Minute, ErrorLog: quiet}
	go func() { r.ended <- r.server.Serve(l) }()
	return r, nil
}

func (r *registry) close() error {
	err := r.server.Close()
	if ended := <-r.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return err
}

// tag is what every image is tagged with.
const tag = "1"

func (r *registry) ref(image string) string { return r.host + "/" + image + ":" + tag }

// serve counts who asks what a tag stands for: every pull does, once, by HEAD.
func (r *registry) serve(w http.ResponseWriter, q *http.Request) {
	image, isManifest := strings.CutSuffix(strings.TrimPrefix(q.URL.Path, "/v2/"), "/manifests/"+tag)
	if isManifest && q.Method == http.MethodHead {
		r.mu.Lock()
		r.asks[image]++
		r.mu.Unlock()
	}
	r.store.ServeHTTP(w, q)
}

func (r *registry) pulls(image string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asks[image]
}
