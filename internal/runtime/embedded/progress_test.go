package embedded_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// stopper is a registry that sends half of one blob and then waits.
type stopper struct {
	http.Handler
	mu sync.Mutex
	// digest is the blob; reached is closed when half of it was sent, goOn sends the rest.
	digest        string
	size          int64
	once          sync.Once
	reached, goOn chan struct{}
}

func (s *stopper) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	stop := s.digest != "" && r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, s.digest)
	s.mu.Unlock()
	if stop {
		w = &half{ResponseWriter: w, s: s, ctx: r.Context(), left: s.size / 2}
	}
	s.Handler.ServeHTTP(w, r)
}

type half struct {
	http.ResponseWriter
	s    *stopper
	ctx  context.Context
	left int64
}

func (h *half) Write(p []byte) (int, error) {
	if h.left < 0 || int64(len(p)) <= h.left {
		h.left -= int64(len(p))
		return h.ResponseWriter.Write(p)
	}
	n, err := h.ResponseWriter.Write(p[:h.left])
	if err != nil {
		return n, err
	}
	h.ResponseWriter.(http.Flusher).Flush()
	h.left = -1
	h.s.once.Do(func() { close(h.s.reached) })
	select {
	case <-h.s.goOn:
	case <-h.ctx.Done():
		return n, h.ctx.Err()
	}
	m, err := h.ResponseWriter.Write(p[n:])
	return n + m, err
}

func TestProgressOfAPull(t *testing.T) {
	in := embeddedtest.Start(t)
	conn := in.Connect(t)
	images := cri.NewImageServiceClient(conn)

	reg := &stopper{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), reached: make(chan struct{}), goOn: make(chan struct{})}
	server := httptest.NewServer(reg)
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	ref := host + "/team/app:1"
	layers := push(t, host, "team/app", "1")
	last := layers[len(layers)-1]
	size, err := last.Size()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := last.Digest()
	if err != nil {
		t.Fatal(err)
	}
	reg.mu.Lock()
	reg.digest, reg.size = digest.String(), size
	reg.mu.Unlock()

	if got, ok, err := embedded.TransferOf(t.Context(), conn, ref); ok || err != nil {
		t.Errorf("before the pull: %+v, %v", got, err)
	}
	pulled := make(chan error, 1)
	go func() {
		_, err := images.PullImage(t.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}})
		pulled <- err
	}()
	select {
	case <-reg.reached:
	case err := <-pulled:
		t.Fatalf("the pull ended: %v", err)
	}
	var total int64
	for _, l := range layers {
		n, err := l.Size()
		if err != nil {
			t.Fatal(err)
		}
		total += n
	}
	var got embedded.Transfer
	// containerd has to read what was sent, and writes it in large pieces: nothing tells
	// when it has.
	here := total - size
	for deadline := time.Now().Add(20 * time.Second); (got.LayersDone < len(layers)-1 || got.BytesDone <= here) && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got, _, err = embedded.TransferOf(t.Context(), conn, ref); err != nil {
			t.Fatal(err)
		}
	}
	if got.Layers != len(layers) || got.LayersDone != len(layers)-1 || got.Bytes != total || got.BytesDone <= here || got.BytesDone > here+size/2 {
		t.Errorf("got %+v, want %d layers of %d bytes, the last one begun (%d)", got, len(layers), total, size)
	}
	if got, ok, err := embedded.TransferOf(t.Context(), conn, strings.Replace(ref, "/team/app", "/team/ap", 1)); ok || err != nil {
		t.Errorf("of another image: %+v, %v", got, err)
	}
	close(reg.goOn)
	if err := <-pulled; err != nil {
		t.Error(err)
	}
	if got, ok, err := embedded.TransferOf(t.Context(), conn, ref); ok || err != nil {
		t.Errorf("after the pull: %+v, %v", got, err)
	}
}

// push puts an image of a few layers into the registry, and returns these.
func push(t *testing.T, host, repository, tag string) []v1.Layer {
	t.Helper()
	image, err := random.Image(8<<20, 4)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range layers {
		blob, err := l.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		digest, err := l.Digest()
		if err != nil {
			t.Fatal(err)
		}
		send(t, http.MethodPost, fmt.Sprintf("http://%s/v2/%s/blobs/uploads/?digest=%s", host, repository, digest), "application/octet-stream", blob)
	}
	config, err := image.RawConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := image.RawManifest()
	if err != nil {
		t.Fatal(err)
	}
	named, err := image.ConfigName()
	if err != nil {
		t.Fatal(err)
	}
	kind, err := image.MediaType()
	if err != nil {
		t.Fatal(err)
	}
	send(t, http.MethodPost, fmt.Sprintf("http://%s/v2/%s/blobs/uploads/?digest=%s", host, repository, named), "application/octet-stream", bytes.NewReader(config))
	send(t, http.MethodPut, fmt.Sprintf("http://%s/v2/%s/manifests/%s", host, repository, tag), string(kind), bytes.NewReader(manifest))
	return layers
}

func send(t *testing.T, method, url, kind string, body io.Reader) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusCreated {
		t.Fatalf("%s %s: %s", method, url, answer.Status)
	}
}

func TestBadReference(t *testing.T) {
	if _, ok, err := embedded.TransferOf(t.Context(), nil, "UPPER"); ok || err == nil {
		t.Errorf("got %v, %v", ok, err)
	}
}
