package pull

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

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
		asked   string
	}{
		{"present, if not present", local, v1.PullIfNotPresent, "sha256:local", false, "", "", "ifnotpresent true false"},
		{"present, never", local, v1.PullNever, "sha256:local", false, "", "", "never true false"},
		{"present, no policy", local, "", "sha256:local", false, "", "", "ifnotpresent true false"},
		{"absent, if not present", remote, v1.PullIfNotPresent, "sha256:far", true, "", "", "ifnotpresent false true"},
		{"absent, never", remote, v1.PullNever, "", false, "ErrImageNeverPull", "is not present with pull policy of Never", "never false false"},
		{"present, always", both, v1.PullAlways, "sha256:new", true, "", "", "always true true"},
		{"imported only, always", local, v1.PullAlways, "", false, "ErrImagePull", "IfNotPresent or Never would use it", "always true true"},
		{"nowhere", "example.com/none:1", v1.PullIfNotPresent, "", false, "ErrImagePull", `failed to pull image "example.com/none:1": no such image in the registry`, "ifnotpresent false true"},
		{"default tag", "example.com/untagged", v1.PullIfNotPresent, "sha256:untagged", true, "", "", "ifnotpresent false true"},
		{"by digest", "example.com/far@sha256:" + strings.Repeat("ab", 32), "", "sha256:digest", true, "", "", "ifnotpresent false true"},
		{"bad name", "UPPER/Case:1", v1.PullIfNotPresent, "", false, "InvalidImageName",
			`Failed to apply default image tag "UPPER/Case:1": couldn't parse image name "UPPER/Case:1": `, "ifnotpresent unknown unknown"},
		{"an ID is no name", strings.Repeat("ab", 32), v1.PullNever, "", false, "InvalidImageName", "", "never unknown unknown"},
		{"empty", "", v1.PullIfNotPresent, "", false, "InvalidImageName", "", "ifnotpresent unknown unknown"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rt := &runtime{
				local: map[string]string{local: "sha256:local", both: "sha256:old"},
				registry: map[string]string{remote: "sha256:far", both: "sha256:new", "example.com/untagged:latest": "sha256:untagged",
					"example.com/far@sha256:" + strings.Repeat("ab", 32): "sha256:digest"},
			}
			cfg := config(rt)
			got, err := New(cfg).Ensure(t.Context(), Request{Image: c.image, Policy: c.policy})
			if asked := cfg.Meter.(*meter).asked; !slices.Equal(asked, []string{c.asked}) {
				t.Errorf("measured %q, want %q", asked, c.asked)
			}
			if c.reason != "" {
				wantFailure(t, err, pod.Reason(c.reason), c.message)
				return
			}
			if err != nil || got.Ref != c.ref || got.Pulled != c.pulled {
				t.Errorf("got %+v, %v; want ref %s, pulled %v", got, err, c.ref, c.pulled)
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
		_, err := New(config(rt)).Ensure(t.Context(), Request{Image: "a:1", Policy: v1.PullAlways})
		if f := wantFailure(t, err, pod.Reason(c.reason)); strings.Contains(f.Message, "rpc error") {
			t.Errorf("got gRPC's words: %q", f.Message)
		}
	}
	rt := &runtime{lookErr: status.Error(codes.Unavailable, "runtime is down")}
	_, err := New(config(rt)).Ensure(t.Context(), Request{Image: "a:1"})
	wantFailure(t, err, "ImageInspectError", `Failed to inspect image "a:1": `, "runtime is down")
}

func TestNoEventForAPullThatIsNotNeeded(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	rt := &runtime{local: map[string]string{"a:1": "sha256:a"}}
	m := New(config(rt))
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
			pullTime: 1200*time.Millisecond + 345*time.Microsecond, lookTime: 600 * time.Millisecond,
		}
		cfg := config(rt)
		m := New(cfg)
		for name, want := range map[string]string{
			"here:1": `Container image "here:1" already present on machine and can be accessed by the pod`,
			"far:1":  `Successfully pulled image "far:1" in 1.2s (2.4s including waiting). Image size: 123 bytes.`,
			"odd:1":  `Successfully pulled image "odd:1" in 1.2s (2.4s including waiting).`,
		} {
			got, err := m.Ensure(t.Context(), Request{Image: name})
			if err != nil || got.Message(name) != want || got.Size != rt.sizes[got.Ref] {
				t.Errorf("got %+v, %v: %q, want %q", got, err, got.Message(name), want)
			}
		}
		if sizes := cfg.Meter.(*meter).sizes; len(sizes) != 2 || sizes[0]+sizes[1] != 123 {
			t.Errorf("measured sizes %v", sizes)
		}
	})
}

func TestCredentialsThatCantBeHad(t *testing.T) {
	rt := &runtime{registry: map[string]string{"a:1": "sha256:a"}}
	_, err := New(config(rt)).Ensure(t.Context(), Request{Image: "a:1", Pod: named("broken")})
	wantFailure(t, err, "ErrImagePull", "credentials", "the plugin crashed")
	if rt.pulls.Load() != 0 {
		t.Error("it was pulled without")
	}
	unknown := &object.Unknown{Key: object.Key{Kind: object.Secret, Namespace: "n", Name: "s"}, NotBefore: time.Unix(1000, 0)}
	if f := keyringFailure("a:1", fmt.Errorf("wrapped: %w", unknown)); f.Awaits.String() != "Secret n/s" || !f.Unknown || !f.NotBefore.Equal(unknown.NotBefore) {
		t.Errorf("a secret that may be there: %+v", f)
	}
}

// FuzzReference: whatever is accepted has a tag or digest and is what was written;
// nothing that is accepted is refused once it has its tag.
func FuzzReference(f *testing.F) {
	for _, s := range []string{"", "a", "a:1", "A", "localhost:5000/a", "x/y@sha256:" + strings.Repeat("0", 64), "a:b:c", "a@b", "[::1]:5000/a:b", "a/../b", "a\x00", "ä", strings.Repeat("ab", 32)} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, image string) {
		name, err := withTag(image)
		if err != nil {
			if f := wantFailure(t, err, "InvalidImageName"); !f.Permanent {
				t.Errorf("%q is worth another try: %+v", image, f)
			}
			return
		}
		if name != image && name != image+":latest" {
			t.Errorf("%q became %q", image, name)
		}
		again, err := withTag(name)
		if err != nil || again != name {
			t.Errorf("%q became %q, %v", name, again, err)
		}
		named, err := reference.ParseNormalizedNamed(name)
		if err != nil || reference.IsNameOnly(named) {
			t.Errorf("%q has neither tag nor digest, %v", name, err)
		}
	})
}
