package spec

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

const (
	required  = "requiredDuringSchedulingIgnoredDuringExecution"
	preferred = "preferredDuringSchedulingIgnoredDuringExecution"
)

func affinity(a *v1.Affinity, at *field.Path) field.ErrorList {
	if a == nil {
		return nil
	}
	var errs field.ErrorList
	if a.NodeAffinity != nil {
		errs = append(errs, nodeAffinity(a.NodeAffinity, at.Child("nodeAffinity"))...)
	}
	if p := a.PodAffinity; p != nil {
		path := at.Child("podAffinity")
		errs = append(errs, podTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, path.Child(required))...)
		errs = append(errs, weightedTerms(p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child(preferred))...)
	}
	if p := a.PodAntiAffinity; p != nil {
		path := at.Child("podAntiAffinity")
		errs = append(errs, podTerms(p.RequiredDuringSchedulingIgnoredDuringExecution, path.Child(required))...)
		errs = append(errs, weightedTerms(p.PreferredDuringSchedulingIgnoredDuringExecution, path.Child(preferred))...)
	}
	return errs
}

func nodeAffinity(a *v1.NodeAffinity, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := a.RequiredDuringSchedulingIgnoredDuringExecution; s != nil {
		errs = append(errs, nodeSelector(s, at.Child(required))...)
	}
	for i := range a.PreferredDuringSchedulingIgnoredDuringExecution {
		p := &a.PreferredDuringSchedulingIgnoredDuringExecution[i]
		item := at.Child(preferred).Index(i)
		errs = append(errs, validation.Range(item.Child("weight"), p.Weight, 1, 100)...)
		errs = append(errs, nodeTerm(&p.Preference, item.Child("preference"))...)
	}
	return errs
}

// nodeSelector checks the node selector of a pod's node affinity or of a PersistentVolume.
func nodeSelector(s *v1.NodeSelector, at *field.Path) field.ErrorList {
	terms := at.Child("nodeSelectorTerms")
	if len(s.NodeSelectorTerms) == 0 {
		return field.ErrorList{field.Required(terms, "must have at least one node selector term")}
	}
	var errs field.ErrorList
	for i := range s.NodeSelectorTerms {
		errs = append(errs, nodeTerm(&s.NodeSelectorTerms[i], terms.Index(i))...)
	}
	return errs
}

func nodeTerm(t *v1.NodeSelectorTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range t.MatchExpressions {
		item := at.Child("matchExpressions").Index(i)
		errs = append(errs, expression(&t.MatchExpressions[i], item)...)
		errs = append(errs, metavalidation.ValidateLabelName(t.MatchExpressions[i].Key, item.Child("key"))...)
	}
	for i := range t.MatchFields {
		errs = append(errs, matchField(&t.MatchFields[i], at.Child("matchFields").Index(i))...)
	}
	return errs
}

func expression(r *v1.NodeSelectorRequirement, at *field.Path) field.ErrorList {
	values := at.Child("values")
	switch r.Operator {
	case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
		if len(r.Values) == 0 {
			return field.ErrorList{field.Required(values, "must be specified when `operator` is 'In' or 'NotIn'")}
		}
	case v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist:
		if len(r.Values) > 0 {
			return field.ErrorList{field.Forbidden(values,
				"may not be specified when `operator` is 'Exists' or 'DoesNotExist'")}
		}
	case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
		if len(r.Values) != 1 {
			return field.ErrorList{field.Required(values,
				"must be specified single value when `operator` is 'Lt' or 'Gt'")}
		}
		if _, err := strconv.ParseInt(r.Values[0], 10, 64); err != nil {
			return field.ErrorList{field.Invalid(values.Index(0), r.Values[0],
				"must be an integer when `operator` is 'Lt' or 'Gt'")}
		}
	default:
		return field.ErrorList{field.NotSupported(at.Child("operator"), r.Operator, []v1.NodeSelectorOperator{
			v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn, v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist,
			v1.NodeSelectorOpGt, v1.NodeSelectorOpLt,
		})}
	}
	return nil
}

// matchField checks a requirement on a field of the node. The only such field is metadata.name.
func matchField(r *v1.NodeSelectorRequirement, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	switch r.Operator {
	case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
		if len(r.Values) != 1 {
			errs = append(errs, field.Required(at.Child("values"),
				"must be only one value when `operator` is 'In' or 'NotIn' for node field selector"))
		}
	default:
		errs = append(errs, field.NotSupported(at.Child("operator"), r.Operator,
			[]v1.NodeSelectorOperator{v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn}))
	}
	if r.Key != "metadata.name" {
		return append(errs, field.NotSupported(at.Child("key"), r.Key, []string{"metadata.name"}))
	}
	for i, v := range r.Values {
		errs = append(errs, validation.Subdomain(at.Child("values").Index(i), v)...)
	}
	return errs
}

func weightedTerms(terms []v1.WeightedPodAffinityTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range terms {
		item := at.Index(i)
		errs = append(errs, validation.Range(item.Child("weight"), terms[i].Weight, 1, 100)...)
		errs = append(errs, podTerm(&terms[i].PodAffinityTerm, item.Child("podAffinityTerm"))...)
	}
	return errs
}

func podTerms(terms []v1.PodAffinityTerm, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range terms {
		errs = append(errs, podTerm(&terms[i], at.Index(i))...)
	}
	return errs
}

func podTerm(t *v1.PodAffinityTerm, at *field.Path) field.ErrorList {
	opts := metavalidation.LabelSelectorValidationOptions{}
	errs := metavalidation.ValidateLabelSelector(t.LabelSelector, opts, at.Child("labelSelector"))
	errs = append(errs, metavalidation.ValidateLabelSelector(t.NamespaceSelector, opts,
		at.Child("namespaceSelector"))...)
	for i, ns := range t.Namespaces {
		errs = append(errs, validation.Label(at.Child("namespaces").Index(i), ns)...)
	}
	errs = append(errs, topologyKey(t.TopologyKey, at.Child("topologyKey"))...)
	errs = append(errs, labelKeys(t.MatchLabelKeys, t.LabelSelector, at.Child("matchLabelKeys"))...)
	errs = append(errs, labelKeys(t.MismatchLabelKeys, t.LabelSelector, at.Child("mismatchLabelKeys"))...)
	return append(errs, overlap(t.MatchLabelKeys, t.MismatchLabelKeys, at.Child("matchLabelKeys"))...)
}
