// Package podspec does for a static pod what an API server does for others: it
// fills in defaults and judges every field, by the rules of v1 in Kubernetes 1.36.
//
// What belongs to one topic has a package of its own below this one: defaults,
// container, volume, security, resources, scheduling. Here is the pod as a whole.
package podspec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/container"
	"github.com/deckhand-node/deckhand/internal/podspec/defaults"
	"github.com/deckhand-node/deckhand/internal/podspec/resources"
	"github.com/deckhand-node/deckhand/internal/podspec/scheduling"
	"github.com/deckhand-node/deckhand/internal/podspec/security"
	"github.com/deckhand-node/deckhand/internal/podspec/volume"
)

// SetDefaults fills in what the pod leaves out, in place. It is idempotent and
// takes any pod, valid or not. The namespace is not its business.
func SetDefaults(p *v1.Pod) { defaults.Set(p) }

// Validate judges a pod that has been through SetDefaults and has its name and
// namespace. It returns everything that is wrong, at the field paths of the
// manifest; nothing when the pod may run. The pod isn't changed.
//
// It judges the text alone: whether a ConfigMap, a Secret, an image or a device
// that the pod names exists is found out when it is run.
func Validate(p *v1.Pod) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	errs = append(errs, metadata(p, field.NewPath("metadata"))...)
	errs = append(errs, life(&p.Spec, at)...)
	errs = append(errs, names(&p.Spec, at)...)
	errs = append(errs, host(&p.Spec, at)...)
	errs = append(errs, dns(&p.Spec, at)...)
	errs = append(errs, volume.Validate(p.Spec.Volumes, p.Name, at.Child("volumes"))...)
	claims, claimErrs := resources.PodClaims(p.Spec.ResourceClaims, at.Child("resourceClaims"))
	errs = append(errs, claimErrs...)
	errs = append(errs, container.Pod{Spec: &p.Spec, Claims: claims}.Validate(at)...)
	errs = append(errs, security.Pod(&p.Spec, at)...)
	errs = append(errs, resources.Pod(&p.Spec, at)...)
	errs = append(errs, resources.List(p.Spec.Overhead, at.Child("overhead"))...)
	return append(errs, scheduling.Validate(&p.Spec, at)...)
}
