package apiclient

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// However the server failed, a watch goes on as soon as one call of any kind succeeds.
func TestRecoveryWakesWatches(t *testing.T) {
	for name, down := range map[string]http.HandlerFunc{
		"500":              refusal(500, metav1.StatusReasonInternalError),
		"503":              refusal(503, metav1.StatusReasonServiceUnavailable),
		"504":              refusal(504, metav1.StatusReasonTimeout),
		"502 with HTML":    html(502),
		"429":              refusal(429, metav1.StatusReasonTooManyRequests),
		"401":              refusal(401, metav1.StatusReasonUnauthorized),
		"HTML":             html(200),
		"it hangs":         func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"connections end":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"500 without text": answer(500, ""),
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, s *served, c *rigged) {
				to, told := c.follow(t)
				told("listed 1 at 10")
				good := *s.handle.Load()
				for _, outage := range []time.Duration{12 * time.Second, 10 * time.Minute} {
					time.Sleep(time.Minute)
					s.handle.Store(&down)
					s.stream <- "end"
					for began := time.Now(); time.Since(began) < outage; time.Sleep(time.Second) {
						_ = c.get(t.Context(), Heartbeat)
					}
					s.handle.Store(&good)
					began := time.Now()
					if err := c.get(t.Context(), Heartbeat); err != nil {
						t.Fatal(err)
					}
					for back := false; !back; {
						select {
						case what := <-to.told:
							back = what == "back"
						case <-time.After(time.Hour):
							t.Fatal("never back")
						}
					}
					// A watch says that it is back when it has lasted. One that hangs may be answered all the same, first.
					if took := time.Since(began); took > firstDelay+shortWatch && !(name == "it hangs" && took < recoveredLimit+firstDelay+shortWatch) {
						t.Errorf("after %s the watch goes on after %s", outage, took)
					}
				}
			})
		})
	}
}

// flap has heartbeats fail and succeed in turn, and other calls answered by a handler.
func flap(rest http.HandlerFunc) http.HandlerFunc {
	var beats atomic.Int32
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case !strings.HasSuffix(r.URL.Path, "/n1"):
			rest(w, r)
		case beats.Add(1)%2 == 1:
			refusal(503, metav1.StatusReasonServiceUnavailable)(w, r)
		default:
			answer(200, node("1"))(w, r)
		}
	}
}

// What needs more time than a call gets after a recovery is answered all the same by a server that recovers again and again; and the time that a
// call waits for its turn here isn't the server's.
func TestRecoveriesLeaveTime(t *testing.T) {
	for name, c := range map[string]struct {
		needs time.Duration
		rate  Rate
		away  bool
	}{
		"lists take long":        {needs: 2 * recoveredLimit, away: true},
		"lists wait a long time": {rate: Rate{PerSecond: 0.1, Burst: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			watched(t, func(t *testing.T, s *served, client *rigged) {
				client.SetRates(c.rate, Rate{})
				list := func(w http.ResponseWriter, r *http.Request) {
					time.Sleep(c.needs)
					answer(200, nodeList)(w, r)
				}
				s.set(flap(list), nil)
				if c.rate.Burst > 0 {
					_ = client.get(t.Context(), Calls) // what may be asked for at once
				}
				ctx, cancel := context.WithCancel(t.Context())
				beaten := make(chan struct{})
				go func() {
					defer close(beaten)
					for ; ctx.Err() == nil; time.Sleep(500 * time.Millisecond) {
						_ = client.get(ctx, Heartbeat)
					}
				}()
				defer func() { cancel(); <-beaten }()
				began := time.Now()
				_, told := client.follow(t)
				if c.away {
					told("away: doesn't answer")
				}
				told("listed 1 at 10")
				if took := time.Since(began); took > 20*time.Second {
					t.Errorf("listed after %s", took)
				}
			})
		})
	}
}

// A call that isn't answered when the server recovers, and fails by itself then, is made again soon.
func TestRecoveryDuringACall(t *testing.T) {
	watched(t, func(t *testing.T, s *served, c *rigged) {
		_, told := c.follow(t)
		told("listed 1 at 10")
		down := refusal(503, metav1.StatusReasonServiceUnavailable)
		s.set(down, down)
		s.stream <- "end"
		told("away: ServiceUnavailable")
		time.Sleep(20 * time.Minute) // the wait is long by now
		begun, fail := make(chan struct{}, 10), make(chan struct{})
		hold := func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/n1") {
				answer(200, node("1"))(w, r)
				return
			}
			begun <- struct{}{}
			<-fail
			down(w, r)
		}
		s.set(hold, hold)
		<-begun
		if err := c.get(t.Context(), Heartbeat); err != nil {
			t.Fatal(err)
		}
		time.Sleep(recoveredLimit / 3)
		s.set(nil, nil)
		began := time.Now()
		close(fail)
		told("listed 1 at 10")
		if took := time.Since(began); took > firstDelay {
			t.Errorf("listed after %s", took)
		}
	})
}

// A watch that fails while all else is well isn't tried again for each call that succeeds.
func TestWatchThatFailsAlone(t *testing.T) {
	watched(t, func(t *testing.T, s *served, c *rigged) {
		_, told := c.follow(t)
		told("listed 1 at 10")
		s.set(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/n1") {
				answer(200, node("1"))(w, r)
				return
			}
			refusal(500, metav1.StatusReasonInternalError)(w, r)
		}, refusal(500, metav1.StatusReasonInternalError))
		s.stream <- "end"
		s.asked()
		heartbeats := 0
		for began := time.Now(); time.Since(began) < 30*time.Minute; time.Sleep(500 * time.Millisecond) {
			if err := c.get(t.Context(), Heartbeat); err != nil {
				t.Fatal(err)
			}
			heartbeats++
		}
		if lists, watches := s.asked(); len(lists)+len(watches)-heartbeats > 100 {
			t.Errorf("%d calls in 30 min", len(lists)+len(watches)-heartbeats)
		}
	})
}

// What is wrong with one call says nothing of the server: nobody is told that it is away, or back.
func TestFailureOfOneCall(t *testing.T) {
	for name, c := range map[string]struct {
		bad  http.HandlerFunc
		ask  func(context.Context, *rigged) error
		want string
	}{
		"a name that can't be asked for": {ask: func(ctx context.Context, c *rigged) error {
			return c.Get(ctx, Calls, Nodes, "", "../n1", &v1.Node{})
		}, want: "../n1"},
		"no name":                           {ask: func(ctx context.Context, c *rigged) error { return c.Get(ctx, Calls, Nodes, "", "", &v1.Node{}) }, want: "resource name may not be empty"},
		"a patch that a proxy doesn't like": {bad: html(400), want: "400 Bad Request"},
		"a URL that a proxy doesn't like":   {bad: html(414), want: "414"},
		"it answers nonsense":               {bad: answer(200, "{]"), want: "can't be decoded"},
		"it answers nothing":                {bad: answer(200, ""), want: "can't be decoded"},
		"it answers another type":           {bad: answer(200, `{"kind":"Pod","apiVersion":"v1","spec":{"containers":7}}`), want: "can't be decoded"},
		"it answers too much":               {bad: endless(200, "application/json", `{"a":"`, 'x', false), want: "larger than 16 MiB"},
		"a hook of one object hangs":        {bad: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, want: "doesn't answer"},
		"conflict":                          {bad: refusal(409, metav1.StatusReasonConflict), want: "Conflict"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer(t, newPipes0(t), nil, func(w http.ResponseWriter, r *http.Request) {
					if r.Method == http.MethodPatch {
						c.bad(w, r)
						return
					}
					answer(200, node("1"))(w, r)
				})
				client := loaded(t, s.kubeconfig(t, ""), func(conf *Config) { conf.Dial = s.dial })
				if c.ask == nil {
					c.ask = func(ctx context.Context, client *rigged) error {
						return client.Patch(ctx, Calls, Pods, "ns", "p", types.MergePatchType, []byte(`{}`), &v1.Pod{}, "status")
					}
				}
				if err := client.get(t.Context(), Heartbeat); err != nil {
					t.Fatal(err)
				}
				changed, stop := client.Subscribe()
				defer stop()
				recovered, stop := client.Recovered()
				defer stop()
				for range 5 {
					failed := make(chan error)
					go func() { failed <- c.ask(t.Context(), client) }()
					time.Sleep(10 * time.Second)
					if err := client.get(t.Context(), Heartbeat); err != nil {
						t.Fatal(err)
					}
					err := <-failed
					var e *Error
					if !errors.As(err, &e) || !strings.Contains(err.Error(), c.want) || Unusable(err) {
						t.Errorf("%v, want %q", err, c.want)
					}
				}
				select {
				case <-changed:
					t.Error("the server is said to be away, or back")
				case <-recovered:
					t.Error("the server is said to have recovered")
				default:
				}
				if ok, _, err := client.Reached(); !ok || client.log.count("can't be used") > 0 {
					t.Errorf("the server counts as away: %v\n%s", err, client.log)
				}
			})
		})
	}
}

// A proxy that answers for the server is noticed by the next heartbeat.
func TestProxyThatAnswersInstead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t, newPipes0(t), nil, answer(200, node("1")))
		c := loaded(t, s.kubeconfig(t, ""), func(conf *Config) { conf.Dial = s.dial })
		if err := c.get(t.Context(), Calls); err != nil {
			t.Fatal(err)
		}
		s.handle.Store(new(html(404)))
		if err := c.get(t.Context(), Calls); err == nil || Unusable(err) {
			t.Errorf("one call: %v", err)
		}
		if err := c.get(t.Context(), Heartbeat); !Unusable(err) {
			t.Errorf("a heartbeat: %v", err)
		}
	})
}

// What fails for a reason of its own waits out its time, whatever the server recovers from; what the server was to blame for is tried soon, but
// not each time, nor before the time that the server asked for.
func TestBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		status := func(code int, after time.Duration) error {
			return &Error{Err: &statusError{metav1.Status{Code: int32(code)}}, retryAfter: after}
		}
		var b Backoff
		left := func() time.Duration { return time.Until(b.Due()) }
		for _, own := range []error{status(409, 0), status(403, 0), &Error{Err: errors.New("no name"), trouble: own}} {
			b = Backoff{}
			for range 10 {
				b.Failed(own)
				was := left()
				if b.Recovered(); left() != was {
					t.Errorf("%v is tried again when the server recovers", own)
				}
			}
		}
		for _, theirs := range []error{status(500, 0), status(429, 0), &Error{Err: errUnresponsive, trouble: unresponsive}, &Error{Err: errors.New("refused"), trouble: refused}} {
			b = Backoff{}
			for range 10 {
				b.Failed(theirs)
			}
			if b.Recovered(); left() > firstDelay {
				t.Errorf("%v is tried again %s after the server recovered", theirs, left())
			}
			tries := 0
			for began := time.Now(); time.Since(began) < 10*time.Minute; time.Sleep(time.Second) {
				b.Recovered()
				if left() <= 0 {
					tries++
					b.Failed(theirs)
				}
			}
			if tries > 30 {
				t.Errorf("%v is tried %d times in 10 min", theirs, tries)
			}
			if b.Succeeded(); left() > 0 || b.Failures() != 0 {
				t.Errorf("%d failures after a success", b.Failures())
			}
		}
		b.Failed(status(429, 20*time.Second))
		if b.Recovered(); left() < 20*time.Second {
			t.Errorf("tried again after %s", left())
		}
		b.Succeeded()
		b.Failed(&Error{Err: errUnresponsive, trouble: unresponsive})
		b.Wait(10 * time.Second)
		if b.Recovered(); left() < 10*time.Second {
			t.Errorf("tried again after %s", left())
		}
	})
}

type statusError struct{ status metav1.Status }

func (e *statusError) Error() string         { return "no" }
func (e *statusError) Status() metav1.Status { return e.status }
