package manager_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/object/objecttest"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

// withToken runs a manager in virtual time, with a pod of an API server's realm that has a volume with a token. token is what the
// volume has.
func withToken(t *testing.T, test func(t *testing.T, w *world, r *objecttest.Realm, token func() string)) {
	withPlugins(t, func(*stand) []volume.Plugin { return nil }, func(t *testing.T, w *world, _ *stand, m *manager.Manager) {
		r := objecttest.Remote(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for {
				select {
				case <-r.Changed.Woken():
					w.changed.Wake(r.Changed.Drain()...)
				case <-ctx.Done():
					return
				}
			}
		}()
		defer func() { cancel(); <-ended }()
		p := newPod(v1.Volume{Name: "access", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "token"}}}}}})
		p.Spec.ServiceAccountName = "robot"
		seen := r.For(&pod.Desired{Pod: w.want(p), Source: r.Source})
		if f := failure(t, m.Prepare(t.Context(), p, seen)); f.Permanent || f.Awaits != object.TokenKey(p) {
			t.Errorf("before there is a token: %+v", f)
		}
		time.Sleep(time.Second)
		must(t, m.Prepare(t.Context(), p, seen))
		test(t, w, r, func() string {
			synctest.Wait()
			for _, token := range []string{"token-1", "token-2", "token-3"} {
				if holds(contentOf(w, p.UID, "kubernetes.io~projected", "access", "token"), token) {
					return token
				}
			}
			return ""
		})
		must(t, m.Clean(t.Context(), p.UID))
	})
}

const due, jitter = 48 * time.Minute, 5 * time.Second // 80 % of an hour

func TestATokenIsRenewedInTime(t *testing.T) {
	withToken(t, func(t *testing.T, w *world, _ *objecttest.Realm, token func() string) {
		if got := token(); got != "token-1" {
			t.Fatalf("at first the volume has %q", got)
		}
		time.Sleep(due - 2*time.Second)
		if got := token(); got != "token-1" {
			t.Errorf("before it is due the volume has %q", got)
		}
		time.Sleep(jitter + 2*time.Second)
		if got := token(); got != "token-2" {
			t.Errorf("after it was due the volume has %q", got)
		}
		time.Sleep(due + jitter)
		if got := token(); got != "token-3" {
			t.Errorf("after the next one was due the volume has %q", got)
		}
		if told := w.told(); len(told) > 0 {
			t.Errorf("told %q", told)
		}
	})
}

// TestATokenThatCantBeRenewedStays, which is told once, and it is tried until it can be.
func TestATokenThatCantBeRenewedStays(t *testing.T) {
	withToken(t, func(t *testing.T, w *world, r *objecttest.Realm, token func() string) {
		r.Fail(object.Key{}, slices.Repeat([]int{503}, 5)...)
		time.Sleep(due + jitter)
		if got, told := token(), w.told(); got == "" || len(told) != 1 || !strings.Contains(told[0], `FailedMount: MountVolume.SetUp failed for volume "access" : it can't be renewed: tokenrequest "web"`) ||
			!strings.HasSuffix(told[0], "the API server answers with status 503; it keeps the content that it has") {
			t.Errorf("the volume has %q, told %q", got, told)
		}
		time.Sleep(10 * time.Second)
		if got, told := token(), w.told(); got != "token-2" || len(told) != 1 {
			t.Errorf("in the end the volume has %q, told %q", got, told)
		}
		time.Sleep(due + jitter)
		if got := token(); got != "token-3" {
			t.Errorf("after the next one was due the volume has %q", got)
		}
	})
}
