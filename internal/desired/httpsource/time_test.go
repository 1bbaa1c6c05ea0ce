package httpsource

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/pod"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func answer(text string) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(text))}
}

// start runs a source that asks f, and returns when it began.
func start(t *testing.T, checkpoints string, every time.Duration, sink *sourcetest.Recorder, f roundTrip) time.Time {
	s, err := New(Config{URL: "http://pods.example/", Every: every}, sourcetest.NewReader(pod.SourceHTTP),
		manifeststore.NewStore(checkpoints, "", pod.SourceHTTP), sink, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	s.client.Transport = f
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return time.Now()
}

func TestPollsEveryAndRetriesSooner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []time.Duration
		begin := time.Now()
		start(t, t.TempDir(), 20*time.Second, sourcetest.NewRecorder(), func(*http.Request) (*http.Response, error) {
			now := time.Since(begin)
			asked = append(asked, now)
			if now >= 40*time.Second && now <= 91*time.Second {
				return nil, errors.New("no")
			}
			return answer(sourcetest.Manifest("web", "app:1")), nil
		})
		time.Sleep(140 * time.Second)
		synctest.Wait()
		want := []int{0, 20, 40, 41, 43, 47, 55, 71, 91, 111, 131}
		if len(asked) != len(want) {
			t.Fatalf("asked at %v, want seconds %v", asked, want)
		}
		for i, at := range asked {
			if at != time.Duration(want[i])*time.Second {
				t.Fatalf("asked at %v, want seconds %v", asked, want)
			}
		}
	})
}

// The back-off neither overflows nor runs away in an outage that lasts.
func TestALongOutageIsAskedAboutEvery(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		start(t, t.TempDir(), 20*time.Second, sourcetest.NewRecorder(), func(*http.Request) (*http.Response, error) {
			if asked++; asked > 10_000 {
				time.Sleep(time.Hour) // or the test wouldn't end
			}
			return nil, errors.New("no")
		})
		time.Sleep(time.Hour)
		synctest.Wait()
		if asked < 180 || asked > 190 {
			t.Errorf("asked %d times in an hour, want about 180", asked)
		}
	})
}

func TestWhatAServerSendsIsShortened(t *testing.T) {
	if text := plain(errors.New(strings.Repeat("é", 1<<20))).Error(); len(text) > 2*maxReason {
		t.Errorf("an error of %d bytes is reported", len(text))
	}
}

// A URL that never answers may not keep known pods from running.
func TestFirstRequestIsShortWhenPodsAreKnown(t *testing.T) {
	checkpoints := t.TempDir()
	hang := func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}
	synctest.Test(t, func(t *testing.T) {
		sink := sourcetest.NewRecorder()
		start(t, checkpoints, 20*time.Second, sink, func(*http.Request) (*http.Response, error) {
			return answer(sourcetest.Manifest("web", "app:1")), nil
		})
		sink.Wait(t, "the pod", sourcetest.Has("web-node1=app:1"))
	})
	synctest.Test(t, func(t *testing.T) {
		sink := sourcetest.NewRecorder()
		begin := start(t, checkpoints, 20*time.Second, sink, hang)
		sink.Wait(t, "the pod", sourcetest.Has("web-node1=app:1!"))
		if took := time.Since(begin); took != firstTimeout {
			t.Errorf("known pods were reported after %v, want %v", took, firstTimeout)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		sink := sourcetest.NewRecorder()
		begin := start(t, t.TempDir(), 20*time.Second, sink, hang)
		r := sink.Wait(t, "a problem", func(r desired.Report) bool { return len(r.Problems) == 1 })
		if took := time.Since(begin); took != timeout || !r.Pending {
			t.Errorf("reported after %v, want %v; pending %v, want true", took, timeout, r.Pending)
		}
	})
}
