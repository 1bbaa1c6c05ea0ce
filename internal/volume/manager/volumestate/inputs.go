package volumestate

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// Objects is as much of the pod's object.View as its volumes are made from.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	Token(ctx context.Context, r object.TokenRequest) (object.Token, error)
}

// Sight is what was seen of a volume's inputs at one time. The zero value is that nothing was
// looked at yet. It holds no content.
type Sight struct {
	looked       bool
	objects      []seen
	pod          *v1.Pod // nil for volumes that don't show their pod
	why          error
	again, renew time.Time
}

// seen is one version of an object, or that there is none.
type seen struct {
	found, known bool
	version      any // the object itself, where it has no version
}

type version struct{ uid, resource string }

type life struct{ issued, until time.Time }

// Inputs are what a volume of the pod is made from, of which it follows every change: objects, the pod itself, and the
// node, which has what the pod leaves open.
func Inputs(p *v1.Pod, v *v1.Volume) []pod.Object {
	var list []pod.Object
	add := func(kind, name string) {
		list = append(list, pod.Object{Kind: kind, Namespace: p.Namespace, Name: name})
	}
	downward := func(items []v1.DownwardAPIVolumeFile) {
		add("Pod", p.Name)
		if slices.ContainsFunc(items, func(f v1.DownwardAPIVolumeFile) bool { return f.ResourceFieldRef != nil }) {
			list = append(list, Node)
		}
	}
	switch {
	case v.ConfigMap != nil:
		add("ConfigMap", v.ConfigMap.Name)
	case v.Secret != nil:
		add("Secret", v.Secret.SecretName)
	case v.DownwardAPI != nil:
		downward(v.DownwardAPI.Items)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			switch source := &v.Projected.Sources[i]; {
			case source.ConfigMap != nil:
				add("ConfigMap", source.ConfigMap.Name)
			case source.Secret != nil:
				add("Secret", source.Secret.Name)
			case source.DownwardAPI != nil:
				downward(source.DownwardAPI.Items)
			case source.ServiceAccountToken != nil:
				list = append(list, object.TokenKey(p))
			}
		}
	}
	return list
}

// Node is what volumes show that depends on what the node has for pods.
var Node = pod.Object{Kind: "Node"}

// Look sees the newest inputs of a volume of the pod, but for what the node has.
func Look(ctx context.Context, from Objects, p *v1.Pod, v *v1.Volume) Sight {
	s := Sight{looked: true}
	for _, in := range Inputs(p, v) {
		switch in.Kind {
		case "ConfigMap":
			o, err := from.ConfigMap(ctx, in.Namespace, in.Name)
			s.add(o, err)
		case "Secret":
			o, err := from.Secret(ctx, in.Namespace, in.Name)
			s.add(o, err)
		case "Pod":
			s.pod = p
		}
	}
	if v.Projected != nil {
		for i := range v.Projected.Sources {
			if source := v.Projected.Sources[i].ServiceAccountToken; source != nil {
				t, err := from.Token(ctx, volume.TokenRequest(p, source))
				s.addToken(t, err)
			}
		}
	}
	return s
}

func (s *Sight) add(o metav1.Object, err error) {
	s.objects = append(s.objects, identify(o, err))
	s.askAgain(err)
}

func (s *Sight) addToken(t object.Token, err error) {
	if err != nil {
		s.objects = append(s.objects, seen{})
		s.askAgain(err)
		return
	}
	s.objects = append(s.objects, seen{found: true, known: true, version: life{t.Issued, t.Until}})
	if renew := t.Renew(); s.renew.IsZero() || renew.Before(s.renew) {
		s.renew = renew
	}
}

func (s *Sight) askAgain(err error) {
	if s.why == nil {
		s.why = err
	}
	if again := object.NotBefore(err); !again.IsZero() && (s.again.IsZero() || again.Before(s.again)) {
		s.again = again
	}
}

// Renew is when some of the inputs are due to be renewed; zero for never.
func (s Sight) Renew() time.Time { return s.renew }

// Why is what kept an input from being seen; nil if all were.
func (s Sight) Why() error { return s.why }

// Again is when it is worth another look though nothing changes; zero for never.
func (s Sight) Again() time.Time { return s.again }

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
		sameResources(a.Spec.InitContainers, b.Spec.InitContainers) &&
		sameResources(a.Spec.Containers, b.Spec.Containers)
}

func sameResources(a, b []v1.Container) bool {
	return slices.EqualFunc(a, b, func(a, b v1.Container) bool {
		return a.Name == b.Name && equality.Semantic.DeepEqual(a.Resources, b.Resources)
	})
}
