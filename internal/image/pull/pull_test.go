package pull

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/engine"
)

func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{pullErr: status.Error(codes.Unknown, "500 from the registry"), pullTime: time.Second}
		m := New(config(rt))
		request := Request{Image: "a", Pulling: func() {}}
		for i, delay := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			_, err := m.Ensure(t.Context(), request)
			f := wantFailure(t, err, "ErrImagePull", "500 from the registry")
			if time.Until(f.NotBefore) != delay*time.Second {
				t.Fatalf("failure %d: again in %s, want %d s", i+1, time.Until(f.NotBefore), delay)
			}
			time.Sleep(delay*time.Second - 1)
			began := time.Now()
			request.Pulling = func() { t.Error("told that a pull begins") }
			_, err = m.Ensure(t.Context(), request)
			request.Pulling = nil
			b := wantFailure(t, err, "ImagePullBackOff")
			if want := `Back-off pulling image "a:latest": ErrImagePull: failed to pull image "a:latest": 500 from the registry`; b.Message != want || b.NotBefore != f.NotBefore || time.Now() != began {
				t.Errorf("got %+v after %s", b, time.Since(began))
			}
			time.Sleep(time.Nanosecond)
		}
		if n := rt.pulls.Load(); n != 7 {
			t.Errorf("%d pulls, want 7", n)
		}
	})
}

func TestWhatEndsABackOff(t *testing.T) {
	for name, c := range map[string]struct {
		step func(*runtime, *Manager) error
		ok   bool
	}{
		"nothing":     {func(*runtime, *Manager) error { return nil }, false},
		"images came": {func(_ *runtime, m *Manager) error { m.RetryAll(); return nil }, true},
		"a node's pull": {func(_ *runtime, m *Manager) error {
			_, err := m.Ensure(context.Background(), Request{Image: "a:1", Policy: v1.PullAlways})
			return err
		}, true},
		"another pod's": {func(_ *runtime, m *Manager) error {
			_, err := m.Ensure(context.Background(), Request{Image: "a:1", Pod: named("tenant"), Policy: v1.PullAlways})
			return err
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}, locked: map[string][]string{"a:1": {"good-one"}}}
			cfg := config(rt)
			cfg.Keyring = keyring{"": {nodeLogin("good-one")}, "tenant": {secretLogin("n", "s", "good-one")}, "late": {secretLogin("n", "t", "changed")}}
			m := New(cfg)
			request := Request{Image: "a:1", Pod: named("late"), Policy: v1.PullAlways}
			_, err := m.Ensure(t.Context(), request)
			wantFailure(t, err, "ErrImagePull")
			if err := c.step(rt, m); err != nil {
				t.Fatal(err)
			}
			rt.locked["a:1"] = []string{"changed"}
			_, err = m.Ensure(t.Context(), request)
			if (err == nil) != c.ok {
				t.Errorf("got %v, want success: %v", err, c.ok)
			}
		})
	}
}

// TestNowWaitsForNoFailure: who asks by hand has just fixed what was wrong.
func TestNowWaitsForNoFailure(t *testing.T) {
	rt := &runtime{}
	m := New(config(rt))
	request := Request{Image: "a:1", Policy: v1.PullAlways}
	_, err := m.Ensure(t.Context(), request)
	wantFailure(t, err, "ErrImagePull")
	rt.registry = map[string]string{"a:1": "sha256:a"}
	_, err = m.Ensure(t.Context(), request)
	wantFailure(t, err, "ImagePullBackOff")
	request.Now = true
	if _, err := m.Ensure(t.Context(), request); err != nil {
		t.Error(err)
	}
}

func TestOtherCredentialsDontWaitForThoseThatFailed(t *testing.T) {
	rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}, locked: map[string][]string{"a:1": {"good"}}}
	cfg := config(rt)
	ring := keyring{"p": {secretLogin("n", "s", "old-password")}}
	cfg.Keyring = ring
	m := New(cfg)
	_, err := m.Ensure(t.Context(), Request{Image: "a:1", Pod: named("p")})
	wantFailure(t, err, "ErrImagePull")
	_, err = m.Ensure(t.Context(), Request{Image: "a:1", Pod: named("p")})
	wantFailure(t, err, "ImagePullBackOff")
	ring["p"] = []credentials.Credential{secretLogin("n", "s", "good")} // the secret was edited
	if _, err := m.Ensure(t.Context(), Request{Image: "a:1", Pod: named("p")}); err != nil {
		t.Error(err)
	}
}

// TestCredentialsThatAreNewEachTime, as some plugins make them, wait all the same.
func TestCredentialsThatAreNewEachTime(t *testing.T) {
	rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}, locked: map[string][]string{"a:1": {"good"}}}
	cfg := config(rt)
	ring := keyring{"": {nodeLogin("one-token")}}
	cfg.Keyring = ring
	m := New(cfg)
	_, err := m.Ensure(t.Context(), Request{Image: "a:1"})
	wantFailure(t, err, "ErrImagePull")
	ring[""] = []credentials.Credential{nodeLogin("another-token")}
	_, err = m.Ensure(t.Context(), Request{Image: "a:1"})
	wantFailure(t, err, "ImagePullBackOff")
}

func TestAnImageThatIsThereNeedsNoBackOff(t *testing.T) {
	rt := &runtime{}
	m := New(config(rt))
	_, err := m.Ensure(t.Context(), Request{Image: "a:1"})
	wantFailure(t, err, "ErrImagePull")
	rt.local = map[string]string{"a:1": "sha256:imported"}
	if got, err := m.Ensure(t.Context(), Request{Image: "a:1"}); err != nil || got.Pulled {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCredentialsAreTriedInOrder(t *testing.T) {
	rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}, locked: map[string][]string{"a:1": {"third-password"}}}
	cfg := config(rt)
	bad := []credentials.Credential{secretLogin("n", "first", "wrong-password-1"), nodeLogin("wrong-password-2"), {IdentityToken: "token-that-is-wrong", Origin: credentials.Origin{Kind: credentials.FromServiceAccount, Namespace: "n", Name: "robot"}}}
	cfg.Keyring = keyring{"good": append(bad[:2:2], secretLogin("n", "third", "third-password"), bad[2]), "bad": bad}
	m := New(cfg)
	if _, err := m.Ensure(t.Context(), Request{Image: "a:1", Pod: named("good"), Policy: v1.PullAlways}); err != nil || rt.pulls.Load() != 3 {
		t.Errorf("%v after %d pulls, want success with the third", err, rt.pulls.Load())
	}
	_, err := m.Ensure(t.Context(), Request{Image: "a:1", Pod: named("bad"), Policy: v1.PullAlways})
	f := wantFailure(t, err, "ErrImagePull", "with secret n/first: 401", "; with the node's configuration: 401", "; with serviceaccount n/robot: 401")
	for _, secret := range []string{"wrong-password", "token-that"} {
		if strings.Contains(f.Message, secret) {
			t.Errorf("the message tells a secret: %s", f.Message)
		}
	}
}

func TestReasonOfSeveralFailures(t *testing.T) {
	down, no := status.Error(codes.Unknown, "RegistryUnavailable: no route"), status.Error(codes.Unknown, "401")
	if f := pullFailure("a:1", []attempt{{err: down}, {err: down}}); f.Reason != "RegistryUnavailable" {
		t.Errorf("got %s", f.Reason)
	}
	if f := pullFailure("a:1", []attempt{{err: down}, {err: no}}); f.Reason != "ErrImagePull" {
		t.Errorf("got %s", f.Reason)
	}
}

// TestNoAttemptRevealsAnothersSecret: a registry may remember what it was shown before.
func TestNoAttemptRevealsAnothersSecret(t *testing.T) {
	first, second := secretLogin("n", "s", "first-password"), secretLogin("n", "t", "second-password")
	no := status.Error(codes.Unknown, "401 after u:first-password and dTpmaXJzdC1wYXNzd29yZA==, second-password")
	f := pullFailure("a:1", []attempt{{&first, no}, {&second, no}, {nil, no}})
	if want := "401 after u:(secret) and (secret), (secret)"; strings.Count(f.Message, want) != 3 || strings.Contains(f.Message, "password") {
		t.Errorf("got %q, want %q three times", f.Message, want)
	}
}

func TestPullsPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}}
		cfg := config(rt)
		cfg.PullsPerSecond, cfg.Burst = 2, 3
		m := New(cfg)
		began := time.Now()
		for range 7 {
			if _, err := m.Ensure(t.Context(), Request{Image: "a:1", Policy: v1.PullAlways}); err != nil {
				t.Error(err)
			}
		}
		// Three at once, the others half a second after one another.
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("took %s, want 2 s", took)
		}
	})
}

func TestTooManyPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{"x:1": "sha256:x"}}
		for i := range 20 {
			rt.registry[fmt.Sprintf("a%d:1", i)] = "sha256:a"
		}
		cfg := config(rt)
		cfg.PullsPerSecond, cfg.Burst = 1, 1
		m := New(cfg)
		var mu sync.Mutex
		var refused []*pod.Failure
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := m.Ensure(t.Context(), Request{Image: fmt.Sprintf("a%d:1", i)}); err != nil {
					mu.Lock()
					defer mu.Unlock()
					refused = append(refused, wantFailure(t, err, "ErrImagePull", "pull QPS exceeded"))
				}
			})
		}
		wg.Wait()
		// One at once, ten within the time of the first back-off.
		if len(refused) != 9 || rt.pulls.Load() != 11 {
			t.Errorf("%d refused, %d pulled", len(refused), rt.pulls.Load())
		}
		ctx, cancel := context.WithCancel(t.Context())
		wg.Go(func() {
			if _, err := m.Ensure(ctx, Request{Image: "x:1"}); !errors.Is(err, context.Canceled) {
				t.Errorf("who gave up got %v", err)
			}
		})
		synctest.Wait()
		cancel()
		wg.Wait()
		if n := m.throttle.limiter.Tokens(); n != 0 {
			t.Errorf("who gave up took a turn: %v left", n)
		}
	})
}

func TestProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := &runtime{registry: map[string]string{"a:1": "sha256:a", "b:1": "sha256:b", "c:1": "sha256:c"}, pullTime: 10 * time.Second, pullErr: status.Error(codes.Unknown, "500")}
		cfg := config(rt)
		cfg.MaxParallelPulls, cfg.Transfers = 1, layers{"a:1": {Layers: 3, LayersDone: 1, Bytes: 100, BytesDone: 50}, "b:1": {Layers: 9}}
		m := New(cfg)
		_, err := m.Ensure(t.Context(), Request{Image: "a:1"})
		f := wantFailure(t, err, "ErrImagePull")
		time.Sleep(time.Until(f.NotBefore))
		began := time.Now()
		var wg sync.WaitGroup
		for i, image := range []string{"a:1", "b:1", "c:1"} {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				m.Ensure(t.Context(), Request{Image: image})
			})
		}
		time.Sleep(5 * time.Second)
		got := m.Progress(t.Context())
		want := []Progress{
			{Image: "a:1", Since: began, Began: began, Failures: 1, Transfer: &engine.Transfer{Layers: 3, LayersDone: 1, Bytes: 100, BytesDone: 50}},
			{Image: "b:1", Since: began.Add(time.Second), Position: 1},
			{Image: "c:1", Since: began.Add(2 * time.Second), Position: 2},
		}
		if len(got) != len(want) {
			t.Fatalf("got %+v", got)
		}
		for i := range want {
			g, w := got[i], want[i]
			if (g.Transfer == nil) != (w.Transfer == nil) || g.Transfer != nil && *g.Transfer != *w.Transfer {
				t.Errorf("got %+v, want %+v", g.Transfer, w.Transfer)
			}
			if g.Transfer, w.Transfer = nil, nil; g != w {
				t.Errorf("got %+v, want %+v", g, w)
			}
		}
		if one := m.ProgressOf(t.Context(), "c:1"); len(one) != 1 || one[0] != want[2] {
			t.Errorf("got %+v", one)
		}
		if none := m.ProgressOf(t.Context(), "C"); none != nil {
			t.Errorf("got %+v", none)
		}
		wg.Wait()
		if left := m.Progress(t.Context()); len(left) != 0 {
			t.Errorf("left: %+v", left)
		}
	})
}

// layers reports how far pulls are.
type layers map[string]engine.Transfer

func (l layers) Transfer(_ context.Context, image string) (engine.Transfer, bool) {
	t, ok := l[image]
	return t, ok
}
