package volumestate

import (
	"context"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Objects is as much of the pod's object.View as its volumes are made from.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
}

// Sight is what was seen of a volume's inputs at one time. The zero value is that nothing was
// looked at yet. It holds no content.
type Sight struct {
	looked  bool
	objects []seen
	pod     *v1.Pod // nil for volumes that don't show their pod
}

// seen is one version of an object, or that there is none.
type seen struct {
	found, known bool
	version      any // the object itself, where it has no version
}

type version struct{ uid, resource string }

// Look sees the newest inputs of a volume of the pod.
func Look(ctx context.Context, from Objects, p *v1.Pod, v *v1.Volume) Sight {
	s := Sight{looked: true}
	if showsPod(v) {
		s.pod = p
	}
	configMap := func(name string) {
		o, err := from.ConfigMap(ctx, p.Namespace, name)
		s.objects = append(s.objects, identify(o, err))
	}
	secret := func(name string) {
		o, err := from.Secret(ctx, p.Namespace, name)
		s.objects = append(s.objects, identify(o, err))
	}
	switch {
	case v.ConfigMap != nil:
		configMap(v.ConfigMap.Name)
	case v.Secret != nil:
		secret(v.Secret.SecretName)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			switch source := &v.Projected.Sources[i]; {
			case source.ConfigMap != nil:
				configMap(source.ConfigMap.Name)
			case source.Secret != nil:
				secret(source.Secret.Name)
			}
		}
	}
	return s
}

func identify(o metav1.Object, err error) seen {
	switch {
	case err != nil:
		return seen{known: apierrors.IsNotFound(err)}
	case o.GetResourceVersion() != "":
		return seen{found: true, known: true, version: version{string(o.GetUID()), o.GetResourceVersion()}}
	default:
		return seen{found: true, known: true, version: o}
	}
}

// showsPod reports whether the volume has fields of its pod in it.
func showsPod(v *v1.Volume) bool {
	return v.DownwardAPI != nil || v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool { return s.DownwardAPI != nil })
}

// Same reports whether nothing has changed between two sights of a volume. Nothing is the
// same as the zero Sight.
func (s Sight) Same(other Sight) bool {
	return s.looked && other.looked && slices.Equal(s.objects, other.objects) && samePod(s.pod, other.pod)
}

// Known reports whether it was known of all objects which they are, or that they aren't there.
func (s Sight) Known() bool {
	return s.looked && !slices.ContainsFunc(s.objects, func(o seen) bool { return !o.known })
}

// samePod compares what volumes can show of a pod and what can change while it runs: labels,
// annotations, resources (API: DownwardAPIVolumeFile).
func samePod(a, b *v1.Pod) bool {
	if a == b {
		return true
	}
	return a != nil && b != nil && maps.Equal(a.Labels, b.Labels) && maps.Equal(a.Annotations, b.Annotations) &&
		equality.Semantic.DeepEqual(a.Spec.Resources, b.Spec.Resources) &&
		sameResources(a.Spec.InitContainers, b.Spec.InitContainers) && sameResources(a.Spec.Containers, b.Spec.Containers)
}

func sameResources(a, b []v1.Container) bool {
	return slices.EqualFunc(a, b, func(a, b v1.Container) bool {
		return a.Name == b.Name && equality.Semantic.DeepEqual(a.Resources, b.Resources)
	})
}
