package podspec

import (
	"math"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/rule"
)

// life checks how a pod starts over and ends, and when it counts as ready.
func life(s *v1.PodSpec, at *field.Path) field.ErrorList {
	errs := rule.OneOf(at.Child("restartPolicy"), s.RestartPolicy, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	if t := s.TerminationGracePeriodSeconds; t != nil {
		errs = append(errs, rule.AtLeast(at.Child("terminationGracePeriodSeconds"), *t, 0)...)
	}
	if t := s.ActiveDeadlineSeconds; t != nil {
		errs = append(errs, rule.Range(at.Child("activeDeadlineSeconds"), *t, 1, math.MaxInt32)...)
	}
	for i, g := range s.ReadinessGates {
		errs = append(errs, rule.QualifiedName(at.Child("readinessGates").Index(i).Child("conditionType"), string(g.ConditionType))...)
	}
	return errs
}

// names checks the other objects a pod names.
func names(s *v1.PodSpec, at *field.Path) field.ErrorList {
	errs := rule.OptionalSubdomain(at.Child("serviceAccountName"), s.ServiceAccountName)
	errs = append(errs, rule.OptionalSubdomain(at.Child("nodeName"), s.NodeName)...)
	if s.RuntimeClassName != nil {
		errs = append(errs, rule.Subdomain(at.Child("runtimeClassName"), *s.RuntimeClassName)...)
	}
	for i, secret := range s.ImagePullSecrets {
		errs = append(errs, rule.Required(at.Child("imagePullSecrets").Index(i).Child("name"), secret.Name, "must name a Secret")...)
	}
	return errs
}
