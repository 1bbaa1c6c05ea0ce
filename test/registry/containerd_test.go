package registry

import (
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// puller pulls through a real containerd.
type puller struct {
	t      *testing.T
	images cri.ImageServiceClient
}

func (p puller) pull(ctx context.Context, ref string, auth *cri.AuthConfig) error {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	_, err := p.images.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref}, Auth: auth})
	return err
}

// want fails the test unless the error has the text, or there is none if that is empty.
func (p puller) want(err error, text string) {
	p.t.Helper()
	if (err == nil) != (text == "") || err != nil && !strings.Contains(err.Error(), text) {
		p.t.Errorf("the error is %v, want %q", err, text)
	}
}

// TestContainerd: what a containerd makes of such a registry, and so what tests with
// one can count on.
func TestContainerd(t *testing.T) {
	in := embeddedtest.Start(t)
	images := cri.NewImageServiceClient(in.Connect(t))
	t.Run("plain HTTP", func(t *testing.T) {
		p, r := puller{t, images}, New(t)
		image := RandomImage(t, 2, 1000)
		byDigest := r.Push(t, "app:1", image)
		if err := in.Config.VerifyRegistry(byDigest); err != nil {
			t.Fatal(err)
		}
		p.want(p.pull(t.Context(), r.Ref("app:1"), nil), "")
		if n, m := r.PullCount("app:1"), r.BlobPulls(Layers(t, image)[0]); n != 1 || m != 1 {
			t.Errorf("one pull counts as %d, %d of a layer", n, m)
		}
		p.want(p.pull(t.Context(), byDigest, nil), "")
		if n := r.PullCount("app@" + Digest(t, image)); n != 1 {
			t.Errorf("the pull by digest counts as %d", n)
		}
		p.want(p.pull(t.Context(), r.Ref("gone:1"), nil), "not found")
	})
	for _, c := range []struct {
		name, anonymous string
		options         []Option
	}{
		{"basic", "authorization failed: no basic auth credentials", []Option{WithUser("me", "geheim", "app")}},
		{"bearer", "401 Unauthorized", []Option{WithUser("me", "geheim", "app"), WithIdentityToken("me", "id"), WithBearer()}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, r := puller{t, images}, New(t, c.options...)
			r.Push(t, "app:1", RandomImage(t, 1, 1000))
			r.Push(t, "other:1", RandomImage(t, 1, 1000))
			p.want(p.pull(t.Context(), r.Ref("app:1"), nil), c.anonymous)
			p.want(p.pull(t.Context(), r.Ref("app:1"), &cri.AuthConfig{Username: "me", Password: "wrong"}), "401")
			p.want(p.pull(t.Context(), r.Ref("other:1"), &cri.AuthConfig{Username: "me", Password: "geheim"}), "403")
			// The address of a docker configuration is no URL: containerd leaves the log-in out.
			p.want(p.pull(t.Context(), r.Ref("app:1"), &cri.AuthConfig{Username: "me", Password: "geheim", ServerAddress: "registry.example"}), c.anonymous)
			p.want(p.pull(t.Context(), r.Ref("app:1"), &cri.AuthConfig{Username: "me", Password: "geheim"}), "")
			if c.name == "bearer" {
				p.want(p.pull(t.Context(), r.Ref("app:1"), &cri.AuthConfig{IdentityToken: "id"}), "")
			}
		})
	}
	t.Run("TLS", func(t *testing.T) {
		p, r := puller{t, images}, New(t, WithTLS(), WithUser("me", "geheim"))
		r.Push(t, "app:1", RandomImage(t, 1, 1000))
		certs := filepath.Join(in.Config.RootDir, "containerd", "certs.d")
		// Its authority isn't known, and so it is only to be taken where that was said.
		const unknown = "certificate signed by unknown authority"
		verified := func() {
			t.Helper()
			if err := in.Config.VerifyRegistry(r.Ref("app:1")); err != nil {
				t.Fatal(err)
			}
		}
		verified()
		p.want(p.pull(t.Context(), r.Ref("app:1"), &cri.AuthConfig{Username: "me", Password: "geheim"}), unknown)
		r.WriteHosts(t, certs)
		verified()
		p.want(p.pull(t.Context(), r.Ref("app:1"), &cri.AuthConfig{Username: "me", Password: "geheim"}), "")
	})
	t.Run("refused", func(t *testing.T) {
		p, r := puller{t, images}, New(t)
		image := RandomImage(t, 1, 100000)
		r.Push(t, "app:1", image)
		r.Fail(Failure{Kind: Manifests, Status: http.StatusTooManyRequests, RetryAfter: time.Second, Times: 1000})
		p.want(p.pull(t.Context(), r.Ref("app:1"), nil), "429")
		if n := r.Refused(http.StatusTooManyRequests); n < 2 {
			t.Errorf("it gave up after %d refusals", n)
		}
		// It tries a few times at once, whatever Retry-After says.
		few := New(t)
		few.Push(t, "app:1", image)
		few.Fail(Failure{Kind: Manifests, Status: http.StatusTooManyRequests, RetryAfter: time.Hour, Times: 2})
		p.want(p.pull(t.Context(), few.Ref("app:1"), nil), "")
	})
	t.Run("cut off", func(t *testing.T) {
		p, r := puller{t, images}, New(t)
		image := RandomImage(t, 1, 100000)
		r.Push(t, "app:1", image)
		layer := Layers(t, image)[0]
		// Only where it gets nothing at all it gives up; else it asks for the rest.
		r.CutBlob(layer, 0, 1000)
		p.want(p.pull(t.Context(), r.Ref("app:1"), nil), "EOF")
		before := r.BlobPulls(layer)
		r.CutBlob(layer, 1000, 3)
		p.want(p.pull(t.Context(), r.Ref("app:1"), nil), "")
		if n := r.BlobPulls(layer) - before; n != 4 {
			t.Errorf("a layer that was cut off 3 times was asked for %d times", n)
		}
	})
	t.Run("given up", func(t *testing.T) {
		p, r := puller{t, images}, New(t)
		image := RandomImage(t, 1, 100000)
		r.Push(t, "app:1", image)
		stop := r.StopBlob(Layers(t, image)[0], 1000)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.pull(ctx, r.Ref("app:1"), nil) }()
		<-stop.Reached()
		cancel()
		p.want(<-done, "canceled")
		stop.Release()
		p.want(p.pull(t.Context(), r.Ref("app:1"), nil), "")
	})
}
