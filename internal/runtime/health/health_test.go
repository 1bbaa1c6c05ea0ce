package health

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/config/validation"
)

// runtime answers as it is told to.
type runtime struct {
	mu      sync.Mutex
	version string
	// asked is how often it was asked for its version or configuration.
	asked  int
	config func(asked int) (*runtimeapi.RuntimeConfigResponse, error)
	status []*runtimeapi.RuntimeCondition
	// hung has it answer no question for its status.
	hung bool
}

func (r *runtime) Version(context.Context) (*runtimeapi.VersionResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if r.version == "" {
		return nil, status.Error(codes.Unavailable, "gone")
	}
	return &runtimeapi.VersionResponse{RuntimeName: "other", RuntimeVersion: r.version}, nil
}

func (r *runtime) Status(ctx context.Context) (*runtimeapi.StatusResponse, error) {
	r.mu.Lock()
	hung, conditions := r.hung, r.status
	r.mu.Unlock()
	if hung {
		<-ctx.Done()
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: conditions}}, nil
}

func (r *runtime) RuntimeConfig(context.Context) (*runtimeapi.RuntimeConfigResponse, error) {
	r.asked++
	return r.config(r.asked)
}

func (r *runtime) becomes(version string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version = version
}

// TestNameAndVersion: they are asked for once when the runtime is there, and again when it comes back.
func TestNameAndVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{}
		s := New(rt, 0, testr.New(t))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		expect := func(asked int, want Info) {
			t.Helper()
			synctest.Wait()
			if got := s.Info(); got != want || rt.asked != asked {
				t.Errorf("%+v after it was asked %d times, want %+v after %d", got, rt.asked, want, asked)
			}
		}
		expect(0, Info{Name: "containerd", Message: "not connected yet"})
		s.SetMessage("it is starting")
		expect(0, Info{Name: "containerd", Message: "it is starting"})
		s.Relisted(nil) // and it is gone before it is asked
		expect(1, Info{Name: "containerd", Ready: true})
		if s.Features() != nil {
			t.Error("its features are known")
		}
		rt.becomes("1")
		s.Relisted(nil)
		expect(2, Info{Name: "other", Version: "1", Ready: true})
		s.Relisted(nil)
		expect(2, Info{Name: "other", Version: "1", Ready: true})
		rt.becomes("2")
		s.Relisted(errors.New("no answer"))
		expect(2, Info{Name: "other", Message: "no answer"})
		s.Relisted(nil)
		expect(3, Info{Name: "other", Version: "2", Ready: true})
		if s.Features() == nil {
			t.Error("its features aren't known")
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestTheCgroupDriverIsWaitedFor: pods in the wrong tree would have no limits.
func TestTheCgroupDriverIsWaitedFor(t *testing.T) {
	says := func(d runtimeapi.CgroupDriver) *runtimeapi.RuntimeConfigResponse {
		return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: d}}
	}
	for name, c := range map[string]struct {
		after  []error
		answer *runtimeapi.RuntimeConfigResponse
		want   string
		known  bool
		took   time.Duration
	}{
		"systemd":              {nil, says(runtimeapi.CgroupDriver_SYSTEMD), validation.CgroupDriverSystemd, true, 0},
		"cgroupfs":             {nil, says(runtimeapi.CgroupDriver_CGROUPFS), validation.CgroupDriverCgroupfs, true, 0},
		"it says nothing":      {nil, &runtimeapi.RuntimeConfigResponse{}, "", false, 0},
		"it can't be asked":    {[]error{status.Error(codes.Unimplemented, "what?")}, nil, "", false, 0},
		"it isn't there":       {[]error{status.Error(codes.Unavailable, "no"), status.Error(codes.Internal, "oh")}, says(runtimeapi.CgroupDriver_SYSTEMD), validation.CgroupDriverSystemd, true, 2 * askAgain},
		"it never is":          {nil, nil, "", false, time.Minute},
		"it has other trouble": {[]error{errors.New("odd"), errors.New("odd")}, says(runtimeapi.CgroupDriver_CGROUPFS), validation.CgroupDriverCgroupfs, true, 2 * askAgain},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := &runtime{config: func(asked int) (*runtimeapi.RuntimeConfigResponse, error) {
					switch {
					case asked <= len(c.after):
						return nil, c.after[asked-1]
					case c.answer == nil:
						return nil, status.Error(codes.Unavailable, "no")
					}
					return c.answer, nil
				}}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				driver, known := New(rt, 0, testr.New(t)).CgroupDriver(ctx)
				if driver != c.want || known != c.known || time.Since(began) != c.took {
					t.Errorf("%q, %v after %v, want %q, %v after %v", driver, known, time.Since(began), c.want, c.known, c.took)
				}
			})
		})
	}
}

func TestCheckReportsWhatIsntReady(t *testing.T) {
	rt := &runtime{status: []*runtimeapi.RuntimeCondition{{Type: "RuntimeReady", Status: true}, {Type: "Whatever"}}}
	s := New(rt, 0, testr.New(t))
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	rt.status = append(rt.status, &runtimeapi.RuntimeCondition{Type: "NetworkReady", Reason: "NoCNI", Message: "no configuration"})
	if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "container runtime network not ready: NetworkReady=false reason:NoCNI message:no configuration") {
		t.Error(err)
	}
}

// TestNotReady: what the runtime says of itself is asked for while somebody wants to know, at once when it is back, and
// more often while it can't run pods.
func TestNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{}
		s := New(rt, time.Minute, testr.New(t))
		changed, stop := s.Subscribe()
		defer stop()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		expect := func(told bool, want ...string) {
			t.Helper()
			synctest.Wait()
			woken := false
			select {
			case <-changed:
				woken = true
			default:
			}
			if got := s.NotReady(); !slices.Equal(got, want) || woken != told {
				t.Errorf("%q, told: %t; want %q, told: %t", got, woken, want, told)
			}
		}
		says := func(ready bool) {
			rt.mu.Lock()
			defer rt.mu.Unlock()
			rt.status = []*runtimeapi.RuntimeCondition{{Type: "RuntimeReady", Status: true}, {Type: "NetworkReady", Status: ready, Reason: "NoCNI", Message: "none"}}
		}
		const noNetwork = "container runtime network not ready: NetworkReady=false reason:NoCNI message:none"
		expect(false, "container runtime is down: not connected yet")
		s.Relisted(nil) // and it doesn't say which it is
		expect(true, "container runtime is down: rpc error: code = Unavailable desc = gone")
		says(false)
		rt.becomes("1")
		time.Sleep(askAgain)
		expect(true, noNetwork)
		says(true)
		time.Sleep(askAgain)
		expect(true)
		says(false)
		time.Sleep(time.Minute)
		expect(true, noNetwork)
		says(true)
		s.Relisted(errors.New("no answer"))
		expect(true, "container runtime is down: no answer")
		s.Relisted(errors.New("no answer"))
		time.Sleep(time.Hour)
		expect(false, "container runtime is down: no answer")
		s.Relisted(nil)
		expect(true)
		s.Relisted(nil)
		time.Sleep(time.Hour)
		expect(false)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestHung: a runtime that lists once and then says nothing is told of, until it answers again; lists come too seldom for that.
func TestHung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{}
		rt.becomes("1")
		s := New(rt, time.Minute, testr.New(t))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		hangs := func(hung bool) {
			rt.mu.Lock()
			defer rt.mu.Unlock()
			rt.hung = hung
		}
		s.Relisted(nil)
		synctest.Wait()
		if i := s.Info(); !i.Ready || len(s.NotReady()) > 0 {
			t.Errorf("%+v, %q", i, s.NotReady())
		}
		hangs(true)
		time.Sleep(time.Minute + answerLimit)
		synctest.Wait()
		if i := s.Info(); i.Ready || !strings.Contains(i.Message, "DeadlineExceeded") || len(s.NotReady()) != 1 {
			t.Errorf("hung: %+v, %q", i, s.NotReady())
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		hangs(false)
		time.Sleep(answerLimit + 2*askAgain) // the question that is under way has to end
		synctest.Wait()
		if i := s.Info(); !i.Ready || i.Message != "" || len(s.NotReady()) > 0 {
			t.Errorf("back: %+v, %q", i, s.NotReady())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
