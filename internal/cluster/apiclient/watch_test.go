package apiclient

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// served is a server of one list and of watches that tests write into.
type served struct {
	*server
	mu sync.Mutex
	// lists and watches are the queries so far.
	lists, watches []string
	// list answers lists, begin answers watches; nil for a good one.
	list, begin http.HandlerFunc
	// stuck has watches stay open.
	stuck bool
	// stream is what watches tell: lines of JSON; a line "end" ends one.
	stream chan string
}

const nodeList = `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"10"},"items":[{"metadata":{"name":"n1","resourceVersion":"7"}}]}`

func serve(t *testing.T) *served {
	s := &served{stream: make(chan string, 100)}
	p := newPipes()
	t.Cleanup(func() { p.Close() })
	s.server = newServer(t, p, nil, func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		watching := r.URL.Query().Get("watch") == "true"
		special := s.list
		if watching {
			s.watches = append(s.watches, r.URL.Query().Get("resourceVersion"))
			special = s.begin
		} else {
			s.lists = append(s.lists, r.URL.RawQuery)
		}
		s.mu.Unlock()
		switch {
		case special != nil:
			special(w, r)
		case !watching:
			answer(200, nodeList)(w, r)
		default:
			s.follow(w, r)
		}
	})
	return s
}

func (s *served) follow(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	flush := w.(http.Flusher)
	flush.Flush()
	lasts, _ := strconv.Atoi(r.URL.Query().Get("timeoutSeconds"))
	s.mu.Lock()
	if s.stuck {
		lasts = math.MaxInt32
	}
	s.mu.Unlock()
	end := time.After(time.Duration(lasts) * time.Second)
	for {
		select {
		case <-r.Context().Done():
			return
		case <-end:
			return
		case line := <-s.stream:
			if line == "end" {
				return
			}
			_, _ = io.WriteString(w, line+"\n")
			flush.Flush()
		}
	}
}

// set changes how lists and watches are answered.
func (s *served) set(list, begin http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list, s.begin = list, begin
}

// asked returns the lists and watches so far, and forgets them.
func (s *served) asked() (lists, watches []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lists, watches = s.lists, s.watches
	s.lists, s.watches = nil, nil
	return lists, watches
}

func event(kind, version string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, node(version))
}

func failure(code int, reason metav1.StatusReason) string {
	text, _ := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Code: int32(code), Reason: reason, Message: "no"})
	return fmt.Sprintf(`{"type":"ERROR","object":%s}`, text)
}

// follow watches node n1 until the end of the test, and expects what is told.
func (r *rigged) follow(t *testing.T) (*sight, func(...string)) {
	t.Helper()
	to := newSight()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { r.Watch(ctx, Nodes, "", Selectors{Fields: "metadata.name=n1"}, to) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return to, func(want ...string) {
		t.Helper()
		for _, w := range want {
			select {
			case got := <-to.told:
				if got != w && !(strings.HasPrefix(w, "away: ") && strings.HasPrefix(got, "away: ") && strings.Contains(got, w[len("away: "):])) {
					t.Fatalf("told %q, want %q", got, w)
				}
			case <-time.After(time.Hour):
				t.Fatalf("never told %q", w)
			}
		}
	}
}

// quietly checks that nothing is told for so long.
func (s *sight) quiet(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case got := <-s.told:
		t.Fatalf("told %q", got)
	case <-time.After(d):
	}
}

func watched(t *testing.T, do func(t *testing.T, s *served, c *rigged)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := serve(t)
		do(t, s, loaded(t, s.kubeconfig(t, ""), func(conf *Config) { conf.Dial = s.dial }))
	})
}

func TestWatch(t *testing.T) {
	watched(t, func(t *testing.T, s *served, c *rigged) {
		_, told := c.follow(t)
		told("listed 1 at 10")
		s.stream <- event("MODIFIED", "11")
		s.stream <- event("DELETED", "12")
		s.stream <- event("BOOKMARK", "20")
		s.stream <- event("ADDED", "21")
		told("modified n1 at 11", "deleted n1 at 12", "added n1 at 21")
		s.stream <- event("BOOKMARK", "30")
		synctest.Wait()
		s.stream <- "end"
		s.stream <- event("MODIFIED", "31")
		told("modified n1 at 31")
		lists, watches := s.asked()
		if fmt.Sprint(lists) != "[fieldSelector=metadata.name%3Dn1]" || fmt.Sprint(watches) != "[10 30]" {
			t.Errorf("asked for %q and %q", lists, watches)
		}
	})
}

// What was missed is listed again; a version that keeps being refused doesn't make a busy loop.
func TestWatchVersionIsGone(t *testing.T) {
	for name, gone := range map[string]struct {
		begin  http.HandlerFunc
		stream string
	}{
		"410 at first":                {begin: refusal(410, metav1.StatusReasonExpired)},
		"410 in the stream":           {stream: failure(410, metav1.StatusReasonExpired)},
		"a version of the future":     {begin: answer(504, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Timeout","code":504,"details":{"causes":[{"reason":"ResourceVersionTooLarge","message":"x"}]}}`)},
		"410 as what was called Gone": {begin: refusal(410, metav1.StatusReasonGone)},
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, s *served, c *rigged) {
				to, told := c.follow(t)
				told("listed 1 at 10")
				time.Sleep(time.Minute)
				began := time.Now()
				s.set(nil, gone.begin)
				if gone.stream != "" {
					s.stream <- gone.stream
				} else {
					s.stream <- "end"
				}
				told("listed 1 at 10")
				if took := time.Since(began); took > time.Second {
					t.Errorf("listed after %s", took)
				}
				if gone.begin == nil {
					to.quiet(t, time.Hour)
					return
				}
				s.asked()
				time.Sleep(10 * time.Minute)
				if lists, watches := s.asked(); len(lists) < 9 || len(lists) > 30 || len(watches) > 30 {
					t.Errorf("%d lists and %d watches in 10 min", len(lists), len(watches))
				}
			})
		})
	}
}

// Each kind of failure is told once, tried again less and less, and over as soon as the server answers; the objects of the time
// between are seen.
func TestWatchFails(t *testing.T) {
	for name, c := range map[string]struct {
		list, begin http.HandlerFunc
		away        string
	}{
		"lists are forbidden":         {list: refusal(403, metav1.StatusReasonForbidden), away: "Forbidden"},
		"lists fail":                  {list: refusal(500, metav1.StatusReasonInternalError), away: "InternalError"},
		"lists are HTML":              {list: html(200), away: "text/html"},
		"lists hang":                  {list: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, away: "doesn't answer"},
		"watches are forbidden":       {begin: refusal(403, metav1.StatusReasonForbidden), away: "Forbidden"},
		"watches are HTML":            {begin: html(200), away: "text/html"},
		"watches hang":                {begin: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, away: "doesn't answer"},
		"watches end at once":         {begin: answer(200, ""), away: "it ends watches as soon as they have begun"},
		"watches end at once, slowly": {begin: slowly(answer(200, "")), away: "it ends watches as soon as they have begun"},
		"watches fail slowly":         {begin: slowly(refusal(500, metav1.StatusReasonInternalError)), away: "InternalError"},
		"watches fail in the stream":  {begin: answer(200, failure(500, metav1.StatusReasonInternalError)), away: "no"},
		"too many requests": {begin: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "50")
			http.Error(w, "Too many requests, please try again later.", http.StatusTooManyRequests)
		}, away: "too many requests"},
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, s *served, client *rigged) {
				s.set(c.list, c.begin)
				to, told := client.follow(t)
				if c.list == nil {
					told("listed 1 at 10")
				}
				told("away: " + c.away)
				s.asked()
				to.quiet(t, 30*time.Minute)
				lists, watches := s.asked()
				if n := len(lists) + len(watches); n < 15 || n > 70 {
					t.Errorf("%d calls in 30 min", n)
				}
				s.set(nil, nil)
				if c.list != nil {
					told("listed 1 at 10")
				}
				told("back")
				s.stream <- event("MODIFIED", "11")
				told("modified n1 at 11")
			})
		})
	}
}

// slowly answers after more than shortWatch.
func slowly(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(2 * shortWatch)
		h(w, r)
	}
}

// A server that was away is found again by the first call that reaches it; a watch doesn't wait out its turn. What it has is listed again: it
// may have been restored from a backup.
func TestWatchFollowsTheFirstCall(t *testing.T) {
	watched(t, func(t *testing.T, s *served, c *rigged) {
		_, told := c.follow(t)
		told("listed 1 at 10")
		time.Sleep(time.Minute)
		down := func(w http.ResponseWriter, r *http.Request) {
			refusal(503, metav1.StatusReasonServiceUnavailable)(w, r)
		}
		s.set(down, down)
		s.stream <- "end"
		told("away: ServiceUnavailable")
		time.Sleep(20 * time.Minute) // the wait is long by now
		s.set(nil, nil)
		began := time.Now()
		_ = c.get(t.Context(), Heartbeat) // it is answered by a list, but it is answered
		told("listed 1 at 10")
		told("back")
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("back after %s", took)
		}
	})
}

// What a watch may have missed without a sign is found by a list, now and then; and that a server went back to an older version by the first thing it tells.
func TestWatchListsNowAndThen(t *testing.T) {
	watched(t, func(t *testing.T, s *served, c *rigged) {
		to, told := c.follow(t)
		told("listed 1 at 10")
		s.stream <- event("MODIFIED", "11")
		told("modified n1 at 11")
		s.stream <- event("BOOKMARK", "5")
		told("listed 1 at 10")
		s.asked()
		for began := time.Now(); time.Since(began) < 24*time.Hour; {
			time.Sleep(10 * time.Minute)
			s.stream <- "end"
			for len(to.told) > 0 {
				told("listed 1 at 10")
			}
		}
		if lists, watches := s.asked(); len(lists) < 11 || len(lists) > 24 || len(watches) < 144 {
			t.Errorf("%d lists and %d watches in a day", len(lists), len(watches))
		}
	})
}

// A server that has other data than before is found by the node's lease, though its watches end without a word, or don't: then all is listed again, once.
func TestWatchOfAnotherStore(t *testing.T) {
	lease := func(uid, version string) string {
		return fmt.Sprintf(`{"kind":"Node","apiVersion":"v1","metadata":{"name":"n1","uid":%q,"resourceVersion":%q}}`, uid, version)
	}
	for name, tc := range map[string]struct {
		lease string
		ends  bool
		// fails has the first list afterwards fail.
		fails http.HandlerFunc
	}{
		"it was restored":                         {lease("a", "99"), false, nil},
		"it was restored, and watches have ended": {lease("a", "99"), true, nil},
		"it is empty":                             {lease("b", "5"), false, nil},
		"it is another cluster's, and ahead":      {lease("b", "5000"), true, nil},
		"the first list fails":                    {lease("b", "5"), false, refusal(500, metav1.StatusReasonInternalError)},
		"it has too much to do for the first":     {lease("b", "5"), true, refusal(429, metav1.StatusReasonTooManyRequests)},
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, s *served, c *rigged) {
				beat := func(lease string, lists http.HandlerFunc) {
					t.Helper()
					s.set(func(w http.ResponseWriter, r *http.Request) {
						if strings.HasSuffix(r.URL.Path, "/n1") {
							answer(200, lease)(w, r)
							return
						}
						lists(w, r)
					}, nil)
					if err := c.get(t.Context(), Heartbeat); err != nil {
						t.Fatal(err)
					}
				}
				good := answer(200, nodeList)
				to, told := c.follow(t)
				told("listed 1 at 10")
				for _, version := range []string{"98", "100", "100"} {
					beat(lease("a", version), good)
					to.quiet(t, time.Minute)
				}
				if tc.ends {
					s.stream <- "end"
					to.quiet(t, time.Minute) // it goes on from its old version
				}
				if tc.fails != nil {
					beat(tc.lease, tc.fails)
					told("away: ")
				}
				beat(tc.lease, good)
				told("listed 1 at 10")
				if tc.fails != nil {
					told("back")
				}
				beat(tc.lease, good)
				to.quiet(t, time.Minute)
				s.stream <- event("MODIFIED", "11")
				told("modified n1 at 11")
				if n := c.log.count("may not be that of before"); n != 1 {
					t.Errorf("logged %d times:\n%s", n, c.log)
				}
			})
		})
	}
}

// A connection whose other end has vanished without a word is found within 40 s.
func TestHalfOpenConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &served{stream: make(chan string)}
		p := newPipes()
		t.Cleanup(func() { p.Close() })
		s.server = newServer(t, p, nil, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("watch") == "" {
				answer(200, `{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"10"}}`)(w, r)
				return
			}
			s.follow(w, r)
		})
		var gone atomic.Bool
		again := make(chan struct{}, 100)
		c := loaded(t, s.kubeconfig(t, ""), func(conf *Config) {
			conf.Dial = func(ctx context.Context, n, a string) (net.Conn, error) {
				if gone.Load() {
					again <- struct{}{}
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return s.dial(ctx, n, a)
			}
		})
		_, told := c.follow(t)
		told("listed 0 at 10")
		time.Sleep(10 * time.Minute) // pings are answered
		synctest.Wait()
		if n := s.dials.Load(); n != 1 {
			t.Fatalf("%d connections while all is well", n)
		}
		began := time.Now()
		p.dead.Store(true)
		gone.Store(true)
		<-again
		if took := time.Since(began); took > 40*time.Second {
			t.Errorf("found after %s", took)
		}
		told("away: ")
	})
}

// With another kubeconfig a watch goes on where it was, and calls under way end.
func TestSessionIsReplaced(t *testing.T) {
	watched(t, func(t *testing.T, s *served, c *rigged) {
		_, told := c.follow(t)
		told("listed 1 at 10")
		s.stream <- event("MODIFIED", "11")
		told("modified n1 at 11")
		release := make(chan struct{})
		handler := *s.handle.Load()
		s.handle.Store(new(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/n1") {
				<-release
				answer(200, node("1"))(w, r)
				return
			}
			handler(w, r)
		})))
		var err error
		var calling sync.WaitGroup
		calling.Go(func() { err = c.get(t.Context(), Calls) })
		synctest.Wait()
		text, readErr := os.ReadFile(c.conf.Kubeconfig)
		if readErr != nil {
			t.Fatal(readErr)
		}
		write(t, c.conf.Kubeconfig, strings.Replace(string(text), "user: {}", "user: {token: other}", 1))
		if _, err := c.load(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		s.stream <- event("MODIFIED", "12")
		told("modified n1 at 12")
		time.Sleep(drainLimit / 2)
		close(release)
		calling.Wait()
		if err != nil {
			t.Errorf("a call under way: %v", err)
		}
		if lists, watches := s.asked(); len(lists) != 1 || fmt.Sprint(watches) != "[10 11]" {
			t.Errorf("asked for %q and %q", lists, watches)
		}
	})
}
