package image

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/engine"
	"github.com/deckhand-node/deckhand/internal/runtime/memcri/node"
)

var (
	_ gc.Users       = Users{}
	_ gc.Listener    = (*Records)(nil)
	_ pull.Transfers = Extras(nil)
)

// TestFailedPulls: a pod's is tried again when credentials come, one by hand has nobody to wait for them.
func TestFailedPulls(t *testing.T) {
	r := newRig(t, engine.External(""))
	r.runtime.Images.Script("r.io/a:1", node.PullBehaviour{Err: status.Error(codes.Unknown, "401 Unauthorized")})
	for awaits, p := range map[pod.Object]*v1.Pod{{Kind: "Secret", Namespace: "default"}: podOf("web"), {}: nil} {
		_, err := r.Ensure(t.Context(), pull.Request{Image: "r.io/a:1", Pod: p})
		if f := (*pod.Failure)(nil); !errors.As(err, &f) || f.Awaits != awaits {
			t.Errorf("got %#v, want it to await %v", err, awaits)
		}
	}
}

// TestImported: an image that came in an archive is known as such, whoever pulled one of its
// name before, and pods that wait are told.
func TestImported(t *testing.T) {
	r := newRig(t, engine.External(""))
	const name = "r.io/a:1"
	if err := r.access.Intend(name); err != nil {
		t.Fatal(err)
	}
	ref := r.runtime.Images.Add(name, false)
	secret := &credentials.Credential{Username: "u", Password: "p", Origin: credentials.Origin{Kind: credentials.FromSecret, Namespace: "default", Name: "s", UID: "u1"}}
	if err := r.access.Pulled(name, ref, secret); err != nil {
		t.Fatal(err)
	}
	mayUse := func() bool {
		may, err := r.access.MayUse(name, ref, func() ([]credentials.Credential, error) { return nil, nil })
		if err != nil {
			t.Fatal(err)
		}
		return may
	}
	if mayUse() {
		t.Fatal("an image that was pulled with a password may be used without")
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	r.imports.Add([]string{name, "r.io/gone:1"})
	select {
	case <-r.arrived:
	case <-time.After(time.Minute):
		t.Error("pods that wait aren't told")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if !mayUse() {
		t.Error("an image that was imported may not be used without the password of one pulled before")
	}
}

// TestInUse: what is wanted and what the runtime has are listed, also while that isn't all.
func TestInUse(t *testing.T) {
	p := podOf("web", "a:1")
	p.Spec.InitContainers = []v1.Container{{Name: "i", Image: "b:1"}}
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "c:1"}}}}
	over := podOf("job", "d:1")
	over.UID = "ended"
	r := &rig{wanted: []*pod.Desired{{Pod: p}, {Pod: over}}, observed: []*pod.Observed{{Namespace: "default", Name: "old", Containers: []pod.Container{
		{Name: "runs", ImageRef: "sha256:1", State: pod.ContainerRunning}, {Name: "ended", ImageRef: "sha256:2", State: pod.ContainerExited}}}}}
	want := map[gc.Use]bool{
		{Image: "sha256:1", User: gc.User{Pod: "default/old", Container: "runs"}}:                true,
		{Image: "sha256:2", User: gc.User{Pod: "default/old", Container: "ended", How: "ended"}}: true,
		{Image: "a:1", User: gc.User{Pod: "default/web", Container: "a"}}:                        true,
		{Image: "b:1", User: gc.User{Pod: "default/web", Container: "i"}}:                        true,
		{Image: "c:1", User: gc.User{Pod: "default/web", How: "image volume"}}:                   true,
	}
	for _, c := range []struct {
		silent, unknown bool
		why             string
	}{
		{false, false, ""},
		{true, false, "the images in use aren't determined yet: not all sources of pods have reported"},
		{false, true, "the images in use aren't determined yet: the runtime's containers haven't been listed"},
	} {
		r.silent, r.unknown = c.silent, c.unknown
		uses, err := Users{r}.InUse(t.Context())
		if why := ""; err != nil {
			if why = err.Error(); why != c.why || !errors.Is(err, gc.ErrUsesUnknown) {
				t.Errorf("got %v, want %q", err, c.why)
			}
		} else if c.why != "" {
			t.Errorf("no error, want %q", c.why)
		}
		if len(uses) != len(want) {
			t.Errorf("got %d uses, want %d: %+v", len(uses), len(want), uses)
		}
		for _, u := range uses {
			if !want[u] {
				t.Errorf("%+v isn't expected", u)
			}
		}
	}
}
