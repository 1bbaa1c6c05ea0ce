package manager_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

// pulled makes image volumes as the stand says.
type pulled struct{ images }

func (p pulled) Mount(ctx context.Context, r volume.Request) (volume.Mounted, error) {
	if err := p.call("mount", r.Spec.Name()); err != nil {
		return volume.Mounted{}, err
	}
	return p.images.Mount(ctx, r)
}

// An image holds up the containers that mount it, and neither the pod nor the others (KEP-4639).
func TestAnImageHoldsUpThoseThatMountIt(t *testing.T) {
	withPlugins(t, func(s *stand) []volume.Plugin { return []volume.Plugin{pulled{images{s}}} }, func(t *testing.T, w *world, s *stand, m *manager.Manager) {
		p := w.want(newPod(v1.Volume{Name: "model", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "model:1"}}}))
		p.Spec.Containers = []v1.Container{{Name: "a", VolumeMounts: []v1.VolumeMount{{Name: "model", MountPath: "/model"}}}, {Name: "b"}}
		a, b := &p.Spec.Containers[0], &p.Spec.Containers[1]
		s.setFail("mount model", &pod.Failure{Reason: pod.ReasonErrImageNeverPull, Message: "not here"})
		resume := s.hang(t, "mount model")
		must(t, m.Prepare(t.Context(), p, w))
		must(t, m.Images(t.Context(), p, b))
		given, giveUp := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Images(given, p, a) }()
		synctest.Wait()
		giveUp()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("a wait that is given up: %v", err)
		}
		go func() { done <- m.Images(t.Context(), p, a) }()
		synctest.Wait()
		resume()
		if f := failure(t, <-done); f.Reason != pod.ReasonErrImageNeverPull || f.Message != "not here" || f.Image != "model:1" {
			t.Errorf("got %+v", f)
		}
		s.setFail("mount model", nil)
		must(t, m.Images(t.Context(), p, a))
		if mounts, _, err := m.Mounts(t.Context(), manager.MountRequest{Pod: p, Container: a.Name}); err != nil || len(mounts) == 0 || mounts[0].Image.GetImage() != "sha256:1" {
			t.Errorf("mounts %v, %v", mounts, err)
		}
	})
}

// inUse records whether its image volumes are in use when they are mounted.
type inUse struct {
	images
	of map[string]bool
}

func (p inUse) Mount(ctx context.Context, r volume.Request) (volume.Mounted, error) {
	p.of[r.Spec.Name()] = r.InUse
	return p.images.Mount(ctx, r)
}

// TestTheImageOfAnAddedContainer is asked for when the container is added, by the volume's own pull policy: the pod doesn't
// use it yet.
func TestTheImageOfAnAddedContainer(t *testing.T) {
	asked := map[string]bool{}
	withPlugins(t, func(s *stand) []volume.Plugin { return []volume.Plugin{inUse{images{s}, asked}} }, func(t *testing.T, w *world, _ *stand, m *manager.Manager) {
		image := func(name string) v1.Volume {
			return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: name + ":1"}}}
		}
		p := w.want(sparePod(image("model"), image("tools")))
		must(t, m.Prepare(t.Context(), p, w))
		must(t, m.Images(t.Context(), p, &p.Spec.Containers[1]))
		w.setRunning(p.UID, true)
		if _, early := asked["tools"]; early {
			t.Error("an image that nobody mounts is pulled")
		}
		p, debug := addContainer(p, "debug", "tools")
		must(t, m.PrepareContainer(t.Context(), w.want(p), debug, w))
		must(t, m.Images(t.Context(), p, debug))
		if used, ok := asked["tools"]; !ok || used {
			t.Errorf("asked for %v, in use %v", ok, used)
		}
	})
}
