package httpsource_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/httpsource"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// run runs a source until the test ends or the function returned is called.
func run(t *testing.T, s *httpsource.Source) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("Run returned %v", err)
			}
		})
	}
	t.Cleanup(stop)
	return stop
}

func problem(part string) func(desired.Report) bool {
	return func(r desired.Report) bool {
		return len(r.Problems) == 1 && strings.Contains(r.Problems[0].Message, part)
	}
}

func TestAnswersThatChangeNothing(t *testing.T) {
	status := func(code int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = w.Write([]byte(sourcetest.Manifest("other", "app:9")))
		}
	}
	tests := map[string]struct {
		answer http.HandlerFunc
		why    string
	}{
		"404":       {status(404), "404 Not Found"},
		"500":       {status(500), "500 Internal Server Error"},
		"201":       {status(201), "201 Created"},
		"empty":     {func(http.ResponseWriter, *http.Request) {}, "it is empty"},
		"cut short": {cutShort, "the connection was lost"},
		"too large": {func(w http.ResponseWriter, _ *http.Request) { writeLarge(w) }, "larger than 10 MiB"},
		"a login page": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte("<html><body>Log in</body></html>"))
		}, ""},
		"a redirect in a circle": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
		}, "redirects more than"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.says(sourcetest.Manifest("web", "app:1"))
			sink := sourcetest.NewRecorder()
			run(t, newSource(t, httpsource.Config{URL: p.URL}, t.TempDir(), sink))
			sink.Wait(t, "the pod", sourcetest.Has("web-node1=app:1"))
			p.answers(test.answer)
			r := sink.Wait(t, "a problem", problem(test.why))
			if !sourcetest.Has("web-node1=app:1!")(r) {
				t.Errorf("the pod isn't kept as stale: %s", sourcetest.Describe(r))
			}
			p.says(sourcetest.Manifest("web", "app:1"))
			sink.Wait(t, "no problem", func(r desired.Report) bool {
				return len(r.Problems) == 0 && sourcetest.Has("web-node1=app:1")(r)
			})
		})
	}
}

func cutShort(w http.ResponseWriter, _ *http.Request) {
	text := sourcetest.Manifest("web", "app:1")
	w.Header().Set("Content-Length", fmt.Sprint(len(text)))
	_, _ = w.Write([]byte(text[:len(text)/2]))
}

func writeLarge(w http.ResponseWriter) {
	block := []byte(strings.Repeat("# a comment that goes on and on\n", 1<<15))
	for range 11 {
		if _, err := w.Write(block); err != nil {
			return
		}
	}
	_, _ = w.Write([]byte(sourcetest.Manifest("other", "app:9")))
}

func TestPodList(t *testing.T) {
	p := newPlace(t)
	item := `{"metadata": {"name": %q}, "spec": {"containers": [{"name": "main", "image": "app:1"}]}}`
	p.says(fmt.Sprintf(`{"apiVersion": "v1", "kind": "PodList", "items": [`+item+`,`+item+`]}`, "web", "db"))
	sink := sourcetest.NewRecorder()
	run(t, newSource(t, httpsource.Config{URL: p.URL}, t.TempDir(), sink))
	sink.Wait(t, "both pods", sourcetest.Has("web-node1=app:1", "db-node1=app:1"))
}

func TestConditionalRequests(t *testing.T) {
	p := newPlace(t)
	text := sourcetest.Manifest("web", "app:1")
	p.answers(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("If-None-Match") == `"v1"` {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		_, _ = w.Write([]byte(text))
	})
	sink := sourcetest.NewRecorder()
	run(t, newSource(t, httpsource.Config{URL: p.URL}, t.TempDir(), sink))
	sink.Wait(t, "the pod", sourcetest.Has("web-node1=app:1"))
	asked := p.requests(t, 5)
	if asked[0].Header.Get("If-None-Match") != "" || asked[1].Header.Get("If-None-Match") != `"v1"` {
		t.Errorf("If-None-Match was %q, then %q; want none, then the ETag", asked[0].Header.Get("If-None-Match"), asked[1].Header.Get("If-None-Match"))
	}
	if got := len(sink.All()); got != 1 {
		t.Errorf("%d reports although nothing changed, want 1", got)
	}
	// After a failure "not modified" would not say what the text was.
	p.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	sink.Wait(t, "a problem", problem("404"))
	p.says(text)
	sink.Wait(t, "the pod, no longer stale", sourcetest.Has("web-node1=app:1"))
}

// A server that answers 304 to a request without a condition says nothing usable.
func TestNotModifiedUnasked(t *testing.T) {
	p := newPlace(t)
	p.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotModified) })
	sink := sourcetest.NewRecorder()
	run(t, newSource(t, httpsource.Config{URL: p.URL}, t.TempDir(), sink))
	if r := sink.Wait(t, "a problem", problem("304")); !r.Pending {
		t.Error("the source isn't pending")
	}
}

func TestHeadersAreSentAndKeptSecret(t *testing.T) {
	elsewhere := newPlace(t)
	elsewhere.says(sourcetest.Manifest("web", "app:1"))
	p := newPlace(t)
	p.answers(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, elsewhere.URL, http.StatusFound)
	})
	var mu sync.Mutex
	var logged strings.Builder
	log := funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		logged.WriteString(prefix + args + "\n")
	}, funcr.Options{Verbosity: 10})
	sink := sourcetest.NewRecorder()
	s, err := httpsource.New(httpsource.Config{
		URL:    strings.Replace(p.URL, "http://", "http://user:hunter2@", 1) + "/pods?token=hunter3",
		Header: http.Header{"X-Token": {"hunter1"}, "Host": {"pods.example"}},
		Every:  time.Millisecond,
	}, sourcetest.NewReader(pod.SourceHTTP), manifeststore.NewStore(t.TempDir(), "", pod.SourceHTTP), sink, log)
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	sink.Wait(t, "the pod", sourcetest.Has("web-node1=app:1"))
	p.Close()
	r := sink.Wait(t, "a problem", func(r desired.Report) bool { return len(r.Problems) == 1 })
	stop()

	first := p.requests(t, 1)[0]
	if first.Header.Get("X-Token") != "hunter1" || first.Host != "pods.example" {
		t.Errorf("the header wasn't sent: %v, host %q", first.Header, first.Host)
	}
	if got := elsewhere.requests(t, 1)[0].Header.Get("X-Token"); got != "" {
		t.Error("the header was sent to another host")
	}
	if got := elsewhere.requests(t, 1)[0].Header.Get("Referer"); got != "" {
		t.Errorf("another host was sent the URL, query and all: %s", got)
	}
	mu.Lock()
	defer mu.Unlock()
	said := logged.String() + fmt.Sprint(r.Problems) + r.Claims[0].Desired.Origin + r.Claims[0].Desired.Stale
	if strings.Contains(said, "hunter") {
		t.Errorf("a secret was reported: %s", said)
	}
}

func TestHTTPS(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	server.Config.ErrorLog = nil
	sink := sourcetest.NewRecorder()
	run(t, newSource(t, httpsource.Config{URL: server.URL, Every: time.Hour}, t.TempDir(), sink))
	sink.Wait(t, "a certificate that isn't trusted to be reported", problem("certificate"))
}

func TestURLs(t *testing.T) {
	for _, url := range []string{"", "ftp://host/x", "/etc/pods", "http://", "http://user:secret@host:port/\x00"} {
		_, err := httpsource.New(httpsource.Config{URL: url}, sourcetest.NewReader(pod.SourceHTTP), nil, nil, logr.Discard())
		if err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("URL %q: error %v", url, err)
		}
	}
}

func TestDownAtStart(t *testing.T) {
	p := newPlace(t)
	p.says(sourcetest.Manifest("web", "app:1") + "---\n" + sourcetest.Secret("token", "x"))
	checkpoints := t.TempDir()
	sink := sourcetest.NewRecorder()
	stop := run(t, newSource(t, httpsource.Config{URL: p.URL}, checkpoints, sink))
	sink.Wait(t, "the pod", sourcetest.Has("web-node1=app:1"))
	stop()
	p.Close()

	t.Run("with a checkpoint", func(t *testing.T) {
		sink := sourcetest.NewRecorder()
		run(t, newSource(t, httpsource.Config{URL: p.URL}, checkpoints, sink))
		r := sink.Wait(t, "the pod", sourcetest.Has("web-node1=app:1!"))
		if r.Pending || len(r.Problems) != 1 || !sourcetest.HasObjects("token=x!")(r) {
			t.Errorf("want the Secret, one problem and a source that counts as having reported: %s", sourcetest.Describe(r))
		}
	})
	t.Run("without a checkpoint", func(t *testing.T) {
		sink := sourcetest.NewRecorder()
		run(t, newSource(t, httpsource.Config{URL: p.URL}, t.TempDir(), sink))
		if r := sink.Wait(t, "a problem", problem("connection refused")); !r.Pending {
			t.Error("the source counts as having reported although it knows nothing")
		}
	})
	t.Run("with a checkpoint of another URL", func(t *testing.T) {
		sink := sourcetest.NewRecorder()
		run(t, newSource(t, httpsource.Config{URL: p.URL + "/other"}, checkpoints, sink))
		if r := sink.Wait(t, "a problem", problem("connection refused")); !r.Pending || len(r.Claims) != 0 {
			t.Errorf("pods of another URL count: %s", sourcetest.Describe(r))
		}
	})
}

func TestEmptyListIsKept(t *testing.T) {
	p := newPlace(t)
	checkpoints := t.TempDir()
	sink := sourcetest.NewRecorder()
	stop := run(t, newSource(t, httpsource.Config{URL: p.URL}, checkpoints, sink))
	sink.Wait(t, "no pods", sourcetest.Has())
	stop()
	p.Close()
	again := sourcetest.NewRecorder()
	run(t, newSource(t, httpsource.Config{URL: p.URL}, checkpoints, again))
	if r := again.Wait(t, "a problem", problem("connection refused")); r.Pending {
		t.Error("a URL that wanted no pods isn't known to want none after a restart")
	}
}
