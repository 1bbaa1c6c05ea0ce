package access

import (
	"errors"
	"strings"
	"testing"

	"github.com/distribution/reference"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

func TestPolicies(t *testing.T) {
	tenant, guest := secret("tenant", "1", "good"), secret("guest", "2", "bad")
	for _, c := range []struct {
		policy                             v1beta1.ImagePullCredentialsVerificationPolicy
		preloaded, listed, private, public bool // what a guest may use
	}{
		{"", true, true, false, true},
		{v1beta1.NeverVerify, true, true, true, true},
		{v1beta1.NeverVerifyPreloadedImages, true, true, false, true},
		{v1beta1.NeverVerifyAllowlistedImages, false, true, false, true},
		{v1beta1.AlwaysVerify, false, false, false, true},
	} {
		r := load(t, t.TempDir(), c.policy, "example.com/listed", "example.com/private")
		pull(t, r, "example.com/private:1", "sha256:private", tenant)
		pull(t, r, "example.com/public:1", "sha256:public")
		for image, want := range map[string]bool{"preloaded": c.preloaded, "listed": c.listed, "private": c.private, "public": c.public} {
			if got := may(t, r, "example.com/"+image+":1", "sha256:"+image, guest); got != want {
				t.Errorf("%s: a guest and a %s image: %v, want %v", c.policy, image, got, want)
			}
		}
		if !may(t, r, "example.com/private:1", "sha256:private", guest, tenant) {
			t.Errorf("%s: the tenant may not use its own image", c.policy)
		}
	}
}

func TestResults(t *testing.T) {
	r := load(t, t.TempDir(), "")
	pull(t, r, "a:1", "sha256:a", secret("s", "1", "good"))
	pull(t, r, "b:1", "sha256:b")
	for _, c := range []struct {
		image string
		have  credentials.Credential
		want  Result
	}{{"pre:1", secret("s", "1", "good"), PolicyAllowed}, {"a:1", secret("s", "1", "good"), RecordFound}, {"b:1", credentials.Credential{}, RecordFound}, {"a:1", secret("t", "2", "bad"), MustAuthenticate}} {
		may(t, r, c.image, "sha256:"+strings.TrimSuffix(c.image, ":1"), c.have)
		if got := r.cfg.Meter.(*meter).last; got != c.want {
			t.Errorf("%s with %v: %s, want %s", c.image, c.have, got, c.want)
		}
	}
	no := errors.New("no credentials")
	if ok, err := r.MayUse("a:1", "sha256:a", func() ([]credentials.Credential, error) { return nil, no }); ok || !errors.Is(err, no) || r.cfg.Meter.(*meter).last != Failed {
		t.Errorf("%v, %v, %s", ok, err, r.cfg.Meter.(*meter).last)
	}
}

func TestAllowlist(t *testing.T) {
	p, err := NewPolicy(v1beta1.NeverVerifyAllowlistedImages, []string{"nginx", "ghcr.io/org/tool", "ghcr.io/open/*", "registry:5000/*", "team/*"})
	if err != nil {
		t.Fatal(err)
	}
	for image, want := range map[string]bool{
		"nginx": true, "nginx:1": true, "docker.io/library/nginx:2": true, "library/nginx": true, "example.com/nginx": false, "nginxx": false,
		"ghcr.io/org/tool:1": true, "ghcr.io/org/tool@sha256:" + strings.Repeat("0", 64): true, "ghcr.io/org/tool/sub": false, "ghcr.io/org/tools": false,
		"ghcr.io/open/a": true, "ghcr.io/open/a/b:1": true, "ghcr.io/open": false, "ghcr.io/opener/a": false,
		"registry:5000/any": true, "registry:5001/any": false, "team/a": true, "docker.io/team/a": true, "other/team/a": false,
	} {
		if got := !p.verifies(image, false); got != want {
			t.Errorf("%s is allowed: %v, want %v", image, got, want)
		}
		if !p.verifies(image, true) {
			t.Errorf("%s was pulled here, and isn't verified", image)
		}
	}
	for _, bad := range []string{"", "*", "/*", "ghcr.io/*/a", "ghcr.io/a*", "nginx:1", "nginx@sha256:" + strings.Repeat("0", 64), "UPPER", "ghcr.io/a/**", "nginx/"} {
		if _, err := NewPolicy(v1beta1.NeverVerifyAllowlistedImages, []string{bad}); err == nil || !strings.Contains(err.Error(), "preloadedImagesVerificationAllowlist") {
			t.Errorf("%q was accepted (%v)", bad, err)
		}
	}
	if _, err := NewPolicy("Sometimes", nil); err == nil {
		t.Error("an unknown policy was accepted")
	}
}

func FuzzWithoutTag(f *testing.F) {
	for _, s := range []string{"a", "a:1", "localhost:5000/a", "localhost:5000/a:1", "a@sha256:" + strings.Repeat("0", 64), "x.y/a:1@sha256:" + strings.Repeat("0", 64), "[::1]:80/a", ":", "@", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, image string) {
		short := withoutTag(image)
		named, err := reference.ParseNormalizedNamed(image)
		if err != nil {
			return
		}
		again, err := reference.ParseNormalizedNamed(short)
		if err != nil || again.String() != named.Name() {
			t.Errorf("%q became %q, want it to mean %q", image, short, named.Name())
		}
	})
}
