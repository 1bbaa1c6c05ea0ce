package pull

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/image/access"
	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

// node is a manager with its runtime and records.
type node struct {
	*Manager
	rt      *runtime
	records *access.Records
	dir     string
}

// startNode starts an agent's part on a node whose disk is dir.
func startNode(t *testing.T, rt *runtime, dir string) node {
	t.Helper()
	cfg := config(rt)
	r := records(t, dir)
	cfg.Access = r
	cfg.Keyring = keyring{"tenant": {secretLogin("n", "s", "good-password")}, "guest": {secretLogin("m", "t", "wrong-password")}, "": {}}
	return node{New(cfg), rt, r, dir}
}

func privateImage() *runtime {
	return &runtime{registry: map[string]string{"a:1": "sha256:a", "free:1": "sha256:free"}, locked: map[string][]string{"a:1": {"good-password"}}, local: map[string]string{"pre:1": "sha256:pre"}}
}

func (n node) ensure(image, pod string, policy v1.PullPolicy) (Image, error) {
	return n.Ensure(context.Background(), Request{Image: image, Pod: named(pod), Policy: policy})
}

func TestAPrivateImageIsNotForGuests(t *testing.T) {
	dir := t.TempDir()
	rt := privateImage()
	n := startNode(t, rt, dir)
	if got, err := n.ensure("a:1", "tenant", ""); err != nil || !got.Pulled {
		t.Fatalf("%+v, %v", got, err)
	}
	for range 2 { // the second time an agent that was started again
		_, err := n.ensure("a:1", "guest", "")
		wantFailure(t, err, "ErrImagePull", "with secret m/t: 401", "hasn't shown to have")
		_, err = n.ensure("a:1", "guest", v1.PullNever)
		wantFailure(t, err, "ErrImageNeverPull", "is on this node, but", "imagePullPolicy Never")
		_, err = n.ensure("a:1", "nobody", v1.PullNever)
		wantFailure(t, err, "ErrImageNeverPull")
		pulls := rt.pulls.Load()
		for _, policy := range []v1.PullPolicy{v1.PullIfNotPresent, v1.PullNever} {
			if got, err := n.ensure("a:1", "tenant", policy); err != nil || got.Pulled || rt.pulls.Load() != pulls {
				t.Errorf("%s: %+v, %v, %d pulls", policy, got, err, rt.pulls.Load())
			}
		}
		if got, err := n.ensure("pre:1", "guest", v1.PullNever); err != nil || got.Pulled {
			t.Errorf("an image that was there before: %+v, %v", got, err)
		}
		n = startNode(t, rt, dir)
	}
}

func TestWhatIsOpenToAllStaysSo(t *testing.T) {
	n := startNode(t, privateImage(), t.TempDir())
	if _, err := n.ensure("free:1", "nobody", ""); err != nil {
		t.Fatal(err)
	}
	if got, err := n.ensure("free:1", "guest", v1.PullNever); err != nil || got.Pulled {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestKilledDuringAPull: the agent is gone, the runtime ends the pull all the same.
func TestKilledDuringAPull(t *testing.T) {
	for _, resolved := range []bool{false, true} {
		rt := privateImage()
		dir := t.TempDir()
		before := records(t, dir)
		if err := before.Intend("a:1"); err != nil {
			t.Fatal(err)
		}
		rt.local["a:1"] = "sha256:a"
		n := startNode(t, rt, dir)
		if resolved {
			if err := n.records.ResolveIntents(t.Context(), n.refOf); err != nil {
				t.Fatal(err)
			}
		}
		_, err := n.ensure("a:1", "guest", v1.PullNever)
		wantFailure(t, err, "ErrImageNeverPull")
		if got, err := n.ensure("a:1", "tenant", ""); err != nil || !got.Pulled {
			t.Errorf("resolved %v: %+v, %v", resolved, got, err)
		}
		if intents, count := n.records.Counts(); intents != 0 || count != 1 {
			t.Errorf("resolved %v: %d intents, %d records left", resolved, intents, count)
		}
	}
}

func (n node) refOf(ctx context.Context, image string) (string, error) {
	stored, err := n.rt.ImageStatus(ctx, image)
	return stored.Ref, err
}

// TestPullsThatWereGivenUp: the runtime may end a pull well after the agent gave it up.
// Then the image isn't for all; but one that was there before stays so.
func TestPullsThatWereGivenUp(t *testing.T) {
	for _, c := range []struct {
		name   string
		there  bool // before
		comes  bool // during the pull that is given up
		guests bool
	}{
		{"comes late", false, true, false},
		{"was there", true, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := privateImage()
				rt.pullTime = time.Minute
				n := startNode(t, rt, t.TempDir())
				if c.there {
					rt.local["a:1"] = "sha256:a"
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := n.Ensure(ctx, Request{Image: "a:1", Pod: named("tenant"), Policy: v1.PullAlways}); err == nil {
					t.Fatal("no timeout")
				}
				if c.comes {
					rt.local["a:1"] = "sha256:a"
				}
				_, err := n.ensure("a:1", "guest", v1.PullNever)
				if (err == nil) != c.guests {
					t.Errorf("a guest got %v", err)
				}
			})
		})
	}
}

// TestAnAnswerOfTheRuntimeIsClear: of a pull that the runtime itself says has failed nothing
// is left, so that an image that is imported later is like any other.
func TestAnAnswerOfTheRuntimeIsClear(t *testing.T) {
	for _, code := range []codes.Code{codes.Unknown, codes.NotFound, codes.Unavailable} {
		rt := privateImage()
		rt.pullErr = status.Error(code, "no")
		n := startNode(t, rt, t.TempDir())
		_, err := n.ensure("a:1", "tenant", "")
		wantFailure(t, err, "ErrImagePull")
		if intents, _ := n.records.Counts(); intents != 0 {
			t.Errorf("%s: %d intents left", code, intents)
		}
		rt.local["a:1"] = "sha256:a"
		if _, err := n.ensure("a:1", "guest", v1.PullNever); err != nil {
			t.Errorf("%s: %v", code, err)
		}
	}
}

// TestARuntimeThatWentAway: what came of the pull isn't known.
func TestARuntimeThatWentAway(t *testing.T) {
	rt := privateImage()
	n := startNode(t, rt, t.TempDir())
	n.cfg.Runtime = dying{rt}
	_, err := n.ensure("a:1", "tenant", "")
	wantFailure(t, err, "ErrImagePull", "connection reset")
	rt.lookErr = nil
	_, err = n.ensure("a:1", "guest", v1.PullNever)
	wantFailure(t, err, "ErrImageNeverPull")
}

// TestAnImageThatCantBeLookedAt: a runtime may name what it has pulled otherwise than what it
// has. As long as it doesn't say what that is, the image is for nobody without a pull.
func TestAnImageThatCantBeLookedAt(t *testing.T) {
	rt := privateImage()
	n := startNode(t, rt, t.TempDir())
	n.cfg.Runtime = mute{rt}
	got, err := n.ensure("a:1", "tenant", "")
	if err != nil || got.Ref != "a@digest" || !got.Pulled {
		t.Fatalf("who pulled it got %+v, %v", got, err)
	}
	rt.lookErr = nil
	if err := n.records.ResolveIntents(t.Context(), func(context.Context, string) (string, error) { return rt.local["a:1"], nil }); err != nil {
		t.Fatal(err)
	}
	if err := n.records.Prune([]string{rt.local["a:1"]}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	_, err = n.ensure("a:1", "guest", v1.PullNever)
	wantFailure(t, err, "ErrImageNeverPull", "pulled with credentials")
	if _, err := n.ensure("a:1", "tenant", ""); err != nil {
		t.Errorf("who has the password got %v", err)
	}
}

// mute pulls an image, names it by its digest, and then says no more.
type mute struct{ *runtime }

func (r mute) PullImage(ctx context.Context, image string, login *credentials.Credential) (string, error) {
	_, err := r.runtime.PullImage(ctx, image, login)
	r.lookErr = status.Error(codes.DeadlineExceeded, "no answer")
	return "a@digest", err
}

// dying pulls an image and takes the answer with it.
type dying struct{ *runtime }

func (d dying) PullImage(ctx context.Context, image string, login *credentials.Credential) (string, error) {
	if _, err := d.runtime.PullImage(ctx, image, login); err != nil {
		return "", err
	}
	d.lookErr = status.Error(codes.Unavailable, "no connection")
	return "", status.Error(codes.Unavailable, "connection reset")
}
