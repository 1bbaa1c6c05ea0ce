package spec

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

func topologyKey(key string, at *field.Path) field.ErrorList {
	if key == "" {
		return field.ErrorList{field.Required(at, "can not be empty")}
	}
	return metavalidation.ValidateLabelName(key, at)
}

func spread(constraints []v1.TopologySpreadConstraint, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	unique := validation.Unique{}
	for i := range constraints {
		c, item := &constraints[i], at.Index(i)
		errs = append(errs, spreadConstraint(c, item)...)
		errs = append(errs, unique.Check(item.Child("{topologyKey, whenUnsatisfiable}"),
			"{"+c.TopologyKey+", "+string(c.WhenUnsatisfiable)+"}")...)
	}
	return errs
}

func spreadConstraint(c *v1.TopologySpreadConstraint, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if c.MaxSkew <= 0 {
		errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be greater than zero"))
	}
	errs = append(errs, topologyKey(c.TopologyKey, at.Child("topologyKey"))...)
	errs = append(errs, validation.OneOf(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, v1.DoNotSchedule,
		v1.ScheduleAnyway)...)
	if c.MinDomains != nil {
		if *c.MinDomains <= 0 {
			errs = append(errs, field.Invalid(at.Child("minDomains"), *c.MinDomains, "must be greater than zero"))
		}
		if c.WhenUnsatisfiable != v1.DoNotSchedule {
			errs = append(errs, field.Invalid(at.Child("minDomains"), *c.MinDomains,
				"can only use minDomains if whenUnsatisfiable=DoNotSchedule"))
		}
	}
	errs = append(errs, validation.OptionalOneOf(at.Child("nodeAffinityPolicy"), c.NodeAffinityPolicy,
		v1.NodeInclusionPolicyIgnore, v1.NodeInclusionPolicyHonor)...)
	errs = append(errs, validation.OptionalOneOf(at.Child("nodeTaintsPolicy"), c.NodeTaintsPolicy,
		v1.NodeInclusionPolicyIgnore, v1.NodeInclusionPolicyHonor)...)
	errs = append(errs, metavalidation.ValidateLabelSelector(c.LabelSelector,
		metavalidation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	return append(errs, labelKeys(c.MatchLabelKeys, c.LabelSelector, at.Child("matchLabelKeys"))...)
}

// labelKeys checks label keys. The pod's own values of these labels are added to the selector, which therefore has
// to exist and must not contain the same keys.
func labelKeys(keys []string, selector *metav1.LabelSelector, at *field.Path) field.ErrorList {
	if len(keys) == 0 {
		return nil
	}
	if selector == nil {
		return field.ErrorList{field.Forbidden(at, "must not be specified when labelSelector is not set")}
	}
	var errs field.ErrorList
	for i, key := range keys {
		errs = append(errs, metavalidation.ValidateLabelName(key, at.Index(i))...)
		if selects(selector, key) {
			errs = append(errs, field.Invalid(at.Index(i), key, "exists in both this list and labelSelector"))
		}
	}
	return errs
}

func selects(s *metav1.LabelSelector, key string) bool {
	_, ok := s.MatchLabels[key]
	return ok || slices.ContainsFunc(s.MatchExpressions, func(r metav1.LabelSelectorRequirement) bool {
		return r.Key == key
	})
}

func overlap(match, mismatch []string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, key := range match {
		if slices.Contains(mismatch, key) {
			errs = append(errs, field.Invalid(at.Index(i), key, "exists in both matchLabelKeys and mismatchLabelKeys"))
		}
	}
	return errs
}
