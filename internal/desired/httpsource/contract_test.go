package httpsource_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/httpsource"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/pod"
)

const noPods = `{"apiVersion": "v1", "kind": "PodList", "items": []}`

// place is a server whose answer can be changed.
type place struct {
	*httptest.Server

	mu      sync.Mutex
	answer  http.HandlerFunc
	asked   []*http.Request
	arrival chan struct{}
}

func newPlace(t testing.TB) *place {
	p := &place{arrival: make(chan struct{}, 1)}
	p.says(noPods)
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		answer := p.answer
		p.asked = append(p.asked, r)
		p.mu.Unlock()
		select {
		case p.arrival <- struct{}{}:
		default:
		}
		answer(w, r)
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *place) answers(h http.HandlerFunc) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.answer = h
}

func (p *place) says(text string) {
	p.answers(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) })
}

// requests returns the requests so far, once there are at least n.
func (p *place) requests(t *testing.T, n int) []*http.Request {
	t.Helper()
	late := time.After(sourcetest.Patience)
	for {
		p.mu.Lock()
		asked := append([]*http.Request(nil), p.asked...)
		p.mu.Unlock()
		if len(asked) >= n {
			return asked
		}
		select {
		case <-p.arrival:
		case <-late:
			t.Fatalf("%d requests came, want %d", len(asked), n)
		}
	}
}

func TestContract(t *testing.T) {
	sourcetest.RunLasting(t, func(t *testing.T) sourcetest.Fixture {
		p := newPlace(t)
		checkpoints := t.TempDir()
		return sourcetest.Fixture{
			Kind: pod.SourceHTTP,
			New: func(sink desired.Sink) sourcetest.Source {
				return newSource(t, httpsource.Config{URL: p.URL + "/pods"}, checkpoints, sink)
			},
			Put:     p.says,
			Remove:  func() { p.says(noPods) },
			Lasting: true,
		}
	})
}

// newSource returns a source that polls as quickly as it can.
func newSource(t testing.TB, config httpsource.Config, checkpoints string, sink desired.Sink) *httpsource.Source {
	t.Helper()
	if config.Every == 0 {
		config.Every = time.Millisecond
	}
	s, err := httpsource.New(config, sourcetest.NewReader(pod.SourceHTTP), manifeststore.NewStore(checkpoints, "", pod.SourceHTTP), sink, testr.NewWithInterface(t, testr.Options{Verbosity: 1}))
	if err != nil {
		t.Fatal(err)
	}
	return s
}
