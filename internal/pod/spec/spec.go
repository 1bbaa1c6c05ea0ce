// Package spec fills in the defaults of pods and other objects from manifests, and validates every field, by the rules
// of v1 in Kubernetes 1.36. It has the role of the API server, which never processes a static pod: the same manifest
// must have the same meaning on this node and in a cluster. The default values are those in the comments of
// k8s.io/api/core/v1.
//
// Scheduling fields are validated, too: no scheduler uses those of a static pod, but the same file must be valid here
// and in a cluster. Package validation checks the fields of containers, volumes, security contexts and resources.
//
// No error contains a value of a Secret.
package spec

import (
	"math"
	"strconv"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

// Validate checks a pod after SetDefaults. The pod has to have its name and namespace. Validate returns all errors,
// with the field paths of the manifest; nil if the pod is valid. It doesn't change the pod.
//
// It only checks the spec itself. Whether the ConfigMaps, Secrets, images and devices in it exist is checked when
// the pod is started.
func Validate(p *v1.Pod) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	errs = append(errs, metadata(p, field.NewPath("metadata"))...)
	errs = append(errs, life(&p.Spec, at)...)
	errs = append(errs, names(&p.Spec, at)...)
	errs = append(errs, host(&p.Spec, at)...)
	errs = append(errs, dns(&p.Spec, at)...)
	errs = append(errs, validation.Volumes(p.Spec.Volumes, p.Name, at.Child("volumes"))...)
	claims, claimErrs := validation.PodClaims(p.Spec.ResourceClaims, at.Child("resourceClaims"))
	errs = append(errs, claimErrs...)
	errs = append(errs, validation.Containers(&p.Spec, claims, at)...)
	errs = append(errs, validation.PodSecurity(&p.Spec, at)...)
	errs = append(errs, validation.PodResources(&p.Spec, at)...)
	errs = append(errs, validation.ResourceList(p.Spec.Overhead, at.Child("overhead"))...)
	return append(errs, scheduling(&p.Spec, at)...)
}

func metadata(p *v1.Pod, at *field.Path) field.ErrorList {
	errs := explained(apivalidation.ValidateObjectMeta(&p.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, at))
	annotations := at.Child("annotations")
	if cost, ok := p.Annotations[v1.PodDeletionCost]; ok {
		if _, err := strconv.ParseInt(cost, 10, 32); err != nil || cost[0] == '+' {
			errs = append(errs, field.Invalid(annotations.Key(v1.PodDeletionCost), cost, "must be a 32bit integer"))
		}
	}
	return append(errs, validation.AppArmorAnnotations(p.Annotations, containersByName(&p.Spec), annotations)...)
}

// explained adds an explanation to errors of apimachinery that only say "Required value".
func explained(errs field.ErrorList) field.ErrorList {
	for _, e := range errs {
		if e.Detail == "" {
			e.Detail = "must be set"
		}
	}
	return errs
}

func containersByName(s *v1.PodSpec) map[string]*v1.Container {
	byName := make(map[string]*v1.Container, len(s.InitContainers)+len(s.Containers))
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			byName[list[i].Name] = &list[i]
		}
	}
	return byName
}

// life checks the fields about the restarts, the end and the readiness of a pod.
func life(s *v1.PodSpec, at *field.Path) field.ErrorList {
	errs := validation.OneOf(at.Child("restartPolicy"), s.RestartPolicy, v1.RestartPolicyAlways,
		v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	if t := s.TerminationGracePeriodSeconds; t != nil {
		errs = append(errs, validation.AtLeast(at.Child("terminationGracePeriodSeconds"), *t, 0)...)
	}
	if t := s.ActiveDeadlineSeconds; t != nil {
		errs = append(errs, validation.Range(at.Child("activeDeadlineSeconds"), *t, 1, math.MaxInt32)...)
	}
	for i, g := range s.ReadinessGates {
		errs = append(errs, validation.QualifiedName(at.Child("readinessGates").Index(i).Child("conditionType"),
			string(g.ConditionType))...)
	}
	return errs
}

// names checks the names of other objects in a pod's spec, such as its service account and its node.
func names(s *v1.PodSpec, at *field.Path) field.ErrorList {
	errs := validation.OptionalSubdomain(at.Child("serviceAccountName"), s.ServiceAccountName)
	errs = append(errs, validation.OptionalSubdomain(at.Child("nodeName"), s.NodeName)...)
	if s.RuntimeClassName != nil {
		errs = append(errs, validation.Subdomain(at.Child("runtimeClassName"), *s.RuntimeClassName)...)
	}
	for i, secret := range s.ImagePullSecrets {
		errs = append(errs, validation.Required(at.Child("imagePullSecrets").Index(i).Child("name"), secret.Name,
			"must name a Secret")...)
	}
	return errs
}
