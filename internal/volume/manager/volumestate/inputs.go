package volumestate

import (
	"context"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// Objects reads the API objects that volumes are made from. It is a part of the pod's object.View.
type Objects interface {
	ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error)
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	CSIDriver(ctx context.Context, name string) (*storagev1.CSIDriver, error)
	Token(ctx context.Context, r object.TokenRequest) (object.Token, error)
}

// Sight has the versions of a volume's inputs at one time, but not their content. The zero value means that the
// inputs weren't read yet.
type Sight struct {
	looked       bool
	objects      []seen
	pod          *v1.Pod // nil for volumes that don't show their pod
	why          error
	again, renew time.Time
	repeats      bool
}

// seen is the version of an object that was read. found is false if the object doesn't exist; known is false if it
// couldn't be read.
type seen struct {
	found, known bool
	version      any // the object itself if it has no resourceVersion
}

type version struct{ uid, resource string }

type life struct{ issued, until time.Time }

// Inputs lists the objects that a volume of the pod shows or is made from: ConfigMaps, Secrets, tokens, a CSIDriver,
// the pod itself, and the node (its allocatable resources are the default of unset limits). When one of them changes,
// the volume has to be updated.
func Inputs(p *v1.Pod, s volume.Spec) []pod.Object {
	var list []pod.Object
	v := s.Volume
	add := func(kind, name string) {
		list = append(list, pod.Object{Kind: kind, Namespace: p.Namespace, Name: name})
	}
	downward := func(items []v1.DownwardAPIVolumeFile) {
		add("Pod", p.Name)
		if slices.ContainsFunc(items, func(f v1.DownwardAPIVolumeFile) bool { return f.ResourceFieldRef != nil }) {
			list = append(list, Node)
		}
	}
	if pv := s.Persistent; pv != nil && pv.Spec.CSI != nil {
		return []pod.Object{{Kind: string(object.CSIDriver), Name: pv.Spec.CSI.Driver}, object.TokenKey(p)}
	}
	switch {
	case v.ConfigMap != nil:
		add("ConfigMap", v.ConfigMap.Name)
	case v.Secret != nil:
		add("Secret", v.Secret.SecretName)
	case v.CSI != nil:
		list = append(list, pod.Object{Kind: string(object.CSIDriver), Name: v.CSI.Driver}, object.TokenKey(p))
		if ref := v.CSI.NodePublishSecretRef; ref != nil {
			add("Secret", ref.Name)
		}
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

// Node is the input of volumes that show the node's allocatable resources.
var Node = pod.Object{Kind: "Node"}

// Observe reads the current inputs of a volume of the pod, except Node, and returns their versions.
func Observe(ctx context.Context, from Objects, p *v1.Pod, of volume.Spec) Sight {
	s, v := Sight{looked: true}, of.Volume
	for _, in := range Inputs(p, of) {
		switch in.Kind {
		case "ConfigMap":
			o, err := from.ConfigMap(ctx, in.Namespace, in.Name)
			s.add(o, err)
		case "Secret":
			o, err := from.Secret(ctx, in.Namespace, in.Name)
			s.add(o, err)
		case string(object.CSIDriver):
			s.addDriver(ctx, from, p, in.Name)
		case "Pod":
			s.pod = p
		}
	}
	if v.Projected != nil {
		for i := range v.Projected.Sources {
			if source := v.Projected.Sources[i].ServiceAccountToken; source != nil {
				t, err := from.Token(ctx, volume.TokenRequest(p, source.Audience, source.ExpirationSeconds))
				s.addToken(t, err)
			}
		}
	}
	return s
}

// addDriver adds a CSIDriver object, and the tokens that the driver wants.
func (s *Sight) addDriver(ctx context.Context, from Objects, p *v1.Pod, name string) {
	d, err := from.CSIDriver(ctx, name)
	s.add(d, err)
	if err != nil {
		return
	}
	s.repeats = ptr.Deref(d.Spec.RequiresRepublish, false)
	for _, r := range d.Spec.TokenRequests {
		t, err := from.Token(ctx, volume.TokenRequest(p, r.Audience, r.ExpirationSeconds))
		s.addToken(t, err)
	}
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

// Renew is when an input, such as a token, has to be renewed; zero for never.
func (s Sight) Renew() time.Time { return s.renew }

// Repeats says that the volume has to be updated from time to time even without a change of its inputs.
func (s Sight) Repeats() bool { return s.repeats }

// Why is the first error of reading an input; nil if there was none.
func (s Sight) Why() error { return s.why }

// Again is when to read the inputs again even without a change; zero for never.
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

// Same reports whether all inputs have the same versions in two Sights of a volume. It is false if one of them is
// the zero Sight.
func (s Sight) Same(other Sight) bool {
	return s.looked && other.looked && slices.Equal(s.objects, other.objects) && samePod(s.pod, other.pod)
}

// Known reports whether each input was either read or found not to exist.
func (s Sight) Known() bool {
	return s.looked && !slices.ContainsFunc(s.objects, func(o seen) bool { return !o.known })
}

// samePod compares the fields of a pod that volumes can show and that can change while it runs: labels,
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
