package image

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// runtime is a node's image store with a registry behind it. Times are virtual.
type runtime struct {
	mu       sync.Mutex
	local    map[string]string
	sizes    map[string]int64 // by reference
	registry map[string]string
	pullErr  error
	lookErr  error
	takes    time.Duration

	looks, pulls, cancelled atomic.Int32
	pulling, mostPulling    int // guarded by mu
}

func (r *runtime) ImageStatus(ctx context.Context, image string) (Stored, error) {
	r.looks.Add(1)
	if err := sleep(ctx, r.takes); err != nil {
		return Stored{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if size, ok := r.sizes[image]; ok {
		return Stored{image, size}, r.lookErr
	}
	ref := r.local[image]
	return Stored{ref, r.sizes[ref]}, r.lookErr
}

func (r *runtime) PullImage(ctx context.Context, image string) (string, error) {
	r.pulls.Add(1)
	r.count(1)
	defer r.count(-1)
	if err := sleep(ctx, r.takes); err != nil {
		r.cancelled.Add(1)
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	ref, ok := r.registry[image]
	if !ok {
		if r.pullErr != nil {
			return "", r.pullErr
		}
		return "", status.Error(codes.NotFound, "no such image in the registry")
	}
	if r.local == nil {
		r.local = map[string]string{}
	}
	r.local[image] = ref
	return ref, nil
}

func (r *runtime) count(delta int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pulling += delta
	r.mostPulling = max(r.mostPulling, r.pulling)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func TestPolicies(t *testing.T) {
	const local, remote, both = "deckhand.local/web:1", "example.com/far:1", "example.com/both:1"
	for _, c := range []struct {
		name    string
		image   string
		policy  v1.PullPolicy
		ref     string
		pulled  bool
		reason  string
		message string
	}{
		{"present, if not present", local, v1.PullIfNotPresent, "sha256:local", false, "", ""},
		{"present, never", local, v1.PullNever, "sha256:local", false, "", ""},
		{"present, no policy", local, "", "sha256:local", false, "", ""},
		{"absent, if not present", remote, v1.PullIfNotPresent, "sha256:far", true, "", ""},
		{"absent, never", remote, v1.PullNever, "", false, "ErrImageNeverPull", "imagePullPolicy Never"},
		{"present, always", both, v1.PullAlways, "sha256:new", true, "", ""},
		{"imported only, always", local, v1.PullAlways, "", false, "ErrImagePull", "IfNotPresent or Never would use it"},
		{"nowhere", "example.com/none:1", v1.PullIfNotPresent, "", false, "ErrImagePull", `failed to pull image "example.com/none:1": no such image in the registry`},
		{"default tag", "example.com/untagged", v1.PullIfNotPresent, "sha256:untagged", true, "", ""},
		{"bad name", "UPPER/Case:1", v1.PullIfNotPresent, "", false, "InvalidImageName", `"UPPER/Case:1"`},
		{"an ID is no name", strings.Repeat("ab", 32), v1.PullNever, "", false, "InvalidImageName", ""},
		{"empty", "", v1.PullIfNotPresent, "", false, "InvalidImageName", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rt := &runtime{
				local:    map[string]string{local: "sha256:local", both: "sha256:old"},
				registry: map[string]string{remote: "sha256:far", both: "sha256:new", "example.com/untagged:latest": "sha256:untagged"},
			}
			got, err := New(rt, Options{}, logr.Discard()).Ensure(t.Context(), Request{Image: c.image, Policy: c.policy})
			if c.reason == "" {
				if err != nil || got.Ref != c.ref || got.Pulled != c.pulled {
					t.Errorf("got %+v, %v; want ref %s, pulled %v", got, err, c.ref, c.pulled)
				}
				return
			}
			var f *pod.Failure
			if !errors.As(err, &f) || f.Reason != c.reason || !strings.Contains(f.Message, c.message) {
				t.Errorf("got %v, want reason %s with %q", err, c.reason, c.message)
			}
		})
	}
}

func TestReasonsTheRuntimeGives(t *testing.T) {
	for _, c := range []struct {
		err    error
		reason string
	}{
		{status.Error(codes.Unknown, "RegistryUnavailable: connection refused"), "RegistryUnavailable"},
		{fmt.Errorf("pull: %w", status.Error(codes.Unknown, "SignatureValidationFailed: no key")), "SignatureValidationFailed"},
		{errors.New("disk full"), "ErrImagePull"},
	} {
		rt := &runtime{pullErr: c.err}
		_, err := New(rt, Options{}, logr.Discard()).Ensure(t.Context(), Request{Image: "a:1", Policy: v1.PullAlways})
		var f *pod.Failure
		if !errors.As(err, &f) || f.Reason != c.reason || strings.Contains(f.Message, "rpc error") {
			t.Errorf("got %v, want reason %s without gRPC's words", err, c.reason)
		}
	}
	rt := &runtime{lookErr: status.Error(codes.Unavailable, "runtime is down")}
	_, err := New(rt, Options{}, logr.Discard()).Ensure(t.Context(), Request{Image: "a:1"})
	var f *pod.Failure
	if !errors.As(err, &f) || f.Reason != "ImageInspectError" {
		t.Errorf("got %v, want ImageInspectError", err)
	}
}

func TestManyPodsShareOneLookAndOnePull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}, takes: time.Second}
		m := New(rt, Options{}, logr.Discard())
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				got, err := m.Ensure(t.Context(), Request{Image: "a:1", Policy: v1.PullIfNotPresent})
				if err != nil || got.Ref != "sha256:a" || got.Took != time.Second || got.Waited != 2*time.Second {
					t.Errorf("got %+v, %v", got, err)
				}
			})
		}
		wg.Wait()
		if rt.looks.Load() != 2 || rt.pulls.Load() != 1 { // one look whether it is there, one at its size
			t.Errorf("%d looks and %d pulls, want two and one", rt.looks.Load(), rt.pulls.Load())
		}
	})
}

func TestWhoWaitsForAPullIsToldThatItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{"a:1": "sha256:a", "b:1": "sha256:b"}, takes: 10 * time.Second}
		m := New(rt, Options{MaxParallelPulls: 1}, logr.Discard())
		begun := time.Now()
		var wg sync.WaitGroup
		ensure := func(image string, at, begins, took, waited time.Duration) {
			wg.Go(func() {
				time.Sleep(at)
				var told []time.Duration
				got, err := m.Ensure(t.Context(), Request{Image: image, Policy: v1.PullAlways, Pulling: func() { told = append(told, time.Since(begun)) }})
				if err != nil || got.Took != took || got.Waited != waited || len(told) != 1 || told[0] != begins {
					t.Errorf("%s wanted at %s: told at %v, %+v, %v", image, at, told, got, err)
				}
			})
		}
		// Each pull takes 10s and is followed by a look at the image's size of 10s.
		ensure("a:1", 0, 0, 10*time.Second, 20*time.Second)
		ensure("a:1", 4*time.Second, 4*time.Second, 10*time.Second, 16*time.Second)
		ensure("a:1", 15*time.Second, 15*time.Second, 5*time.Second, 5*time.Second)
		ensure("b:1", time.Second, time.Second, 10*time.Second, 39*time.Second)
		wg.Wait()
	})
}

func TestNobodyIsToldOfAPullThatIsNotNeeded(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	rt := &runtime{local: map[string]string{"a:1": "sha256:a"}}
	m := New(rt, Options{}, logr.Discard())
	for _, c := range []struct {
		ctx     context.Context
		request Request
	}{
		{t.Context(), Request{Image: "a:1"}},
		{t.Context(), Request{Image: "b:1", Policy: v1.PullNever}},
		{t.Context(), Request{Image: "B:1", Policy: v1.PullAlways}},
		{ended, Request{Image: "a:1", Policy: v1.PullAlways}},
	} {
		c.request.Pulling = func() { t.Errorf("told for %+v", c.request) }
		if _, err := m.Ensure(c.ctx, c.request); (err == nil) != (c.request.Policy == "") {
			t.Errorf("%+v: %v", c.request, err)
		}
	}
}

func TestMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{
			local:    map[string]string{"here:1": "sha256:here"},
			registry: map[string]string{"far:1": "sha256:far", "odd:1": "sha256:odd"},
			sizes:    map[string]int64{"sha256:here": 5, "sha256:far": 123},
			takes:    1200*time.Millisecond + 345*time.Microsecond,
		}
		m := New(rt, Options{}, logr.Discard())
		for name, want := range map[string]string{
			"here:1": `Container image "here:1" already present on machine`,
			"far:1":  `Successfully pulled image "far:1" in 1.2s (2.4s including waiting). Image size: 123 bytes.`,
			"odd:1":  `Successfully pulled image "odd:1" in 1.2s (2.4s including waiting).`,
		} {
			got, err := m.Ensure(t.Context(), Request{Image: name})
			if err != nil || got.Message(name) != want || got.Size != rt.sizes[got.Ref] {
				t.Errorf("got %+v, %v: %q, want %q", got, err, got.Message(name), want)
			}
		}
		rt.lookErr = errors.New("down") // only the size is missing then
		if got, err := m.Ensure(t.Context(), Request{Image: "far:1", Policy: v1.PullAlways}); err != nil || got.Ref != "sha256:far" || got.Size != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestPullGoesOnWhileOneWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}, takes: time.Minute}
		m := New(rt, Options{}, logr.Discard())
		first, cancelFirst := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := m.Ensure(first, Request{Image: "a:1", Policy: v1.PullAlways}); !errors.Is(err, context.Canceled) {
				t.Errorf("who gave up got %v", err)
			}
		})
		synctest.Wait()
		wg.Go(func() {
			if _, err := m.Ensure(t.Context(), Request{Image: "a:1", Policy: v1.PullAlways}); err != nil {
				t.Errorf("who stayed got %v", err)
			}
		})
		synctest.Wait()
		cancelFirst()
		wg.Wait()
		if rt.pulls.Load() != 1 || rt.cancelled.Load() != 0 {
			t.Errorf("%d pulls, %d cancelled", rt.pulls.Load(), rt.cancelled.Load())
		}
	})
}

func TestPullEndsWhenNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}, takes: time.Minute}
		m := New(rt, Options{}, logr.Discard())
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if _, err := m.Ensure(ctx, Request{Image: "a:1", Policy: v1.PullAlways}); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("got %v", err)
				}
			})
		}
		wg.Wait()
		if rt.cancelled.Load() != 1 {
			t.Errorf("%d pulls cancelled, want 1", rt.cancelled.Load())
		}
		if _, err := m.Ensure(t.Context(), Request{Image: "a:1", Policy: v1.PullAlways}); err != nil {
			t.Errorf("the next one joined a cancelled pull: %v", err)
		}
	})
}

func TestParallelPullsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{}, takes: time.Second}
		for i := range 10 {
			rt.registry[fmt.Sprintf("image-%d:1", i)] = "sha256:x"
		}
		m := New(rt, Options{MaxParallelPulls: 2}, logr.Discard())
		var wg sync.WaitGroup
		for image := range rt.registry {
			wg.Go(func() {
				if _, err := m.Ensure(t.Context(), Request{Image: image, Policy: v1.PullAlways}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := rt.mostPulling; n != 2 {
			t.Errorf("%d pulls at once, want 2", n)
		}
	})
}

// TestSharedWithAnyPatience lets callers come and give up at random: the answer is
// either the value or the own context's error, and at the end nothing runs.
func TestSharedWithAnyPatience(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type caller struct{ at, patience int }
		callers := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) caller {
			return caller{rapid.IntRange(0, 20).Draw(rt, "at"), rapid.IntRange(1, 20).Draw(rt, "patience")}
		}), 1, 20).Draw(rt, "callers")
		synctest.Test(t, func(t *testing.T) {
			var s shared[string]
			var running atomic.Int32
			var wg sync.WaitGroup
			for _, c := range callers {
				wg.Go(func() {
					time.Sleep(time.Duration(c.at) * time.Second)
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(c.patience)*time.Second)
					defer cancel()
					ref, err := s.do(ctx, "key", func(ctx context.Context) (string, error) {
						running.Add(1)
						defer running.Add(-1)
						return "ref", sleep(ctx, 7*time.Second)
					})
					if err == nil && ref != "ref" || err != nil && !errors.Is(err, ctx.Err()) {
						t.Errorf("got %q, %v", ref, err)
					}
				})
			}
			wg.Wait()
			if running.Load() != 0 || len(s.calls) != 0 {
				t.Errorf("%d calls run, %d are remembered", running.Load(), len(s.calls))
			}
		})
	})
}
