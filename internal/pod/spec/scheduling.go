package spec

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	specvalidation "github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

// scheduling checks all scheduling fields of a pod's spec.
func scheduling(s *v1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, metavalidation.ValidateLabels(s.NodeSelector, at.Child("nodeSelector"))...)
	errs = append(errs, affinity(s.Affinity, at.Child("affinity"))...)
	errs = append(errs, tolerations(s.Tolerations, at.Child("tolerations"))...)
	errs = append(errs, spread(s.TopologySpreadConstraints, at.Child("topologySpreadConstraints"))...)
	errs = append(errs, gates(s, at)...)
	errs = append(errs, priority(s, at)...)
	return append(errs, group(s.SchedulingGroup, at.Child("schedulingGroup"))...)
}

func priority(s *v1.PodSpec, at *field.Path) field.ErrorList {
	errs := specvalidation.OptionalSubdomain(at.Child("priorityClassName"), s.PriorityClassName)
	return append(errs, specvalidation.OptionalOneOf(at.Child("preemptionPolicy"), s.PreemptionPolicy,
		v1.PreemptLowerPriority, v1.PreemptNever)...)
}

// gates checks the scheduling gates. A pod with scheduling gates isn't scheduled, so it must not be bound to a node.
func gates(s *v1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	unique := specvalidation.Unique{}
	for i, g := range s.SchedulingGates {
		item := at.Child("schedulingGates").Index(i)
		errs = append(errs, specvalidation.QualifiedName(item.Child("name"), g.Name)...)
		errs = append(errs, unique.Check(item, g.Name)...)
	}
	if len(s.SchedulingGates) > 0 && s.NodeName != "" {
		errs = append(errs, field.Forbidden(at.Child("nodeName"),
			"cannot be set until all schedulingGates have been cleared"))
	}
	return errs
}

func group(g *v1.PodSchedulingGroup, at *field.Path) field.ErrorList {
	if g == nil {
		return nil
	}
	if g.PodGroupName == nil {
		return field.ErrorList{field.Required(at, "must specify one of: `podGroupName`")}
	}
	return specvalidation.Subdomain(at.Child("podGroupName"), *g.PodGroupName)
}

func tolerations(list []v1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i := range list {
		errs = append(errs, toleration(&list[i], at.Index(i))...)
	}
	return errs
}

func toleration(t *v1.Toleration, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Key != "" {
		errs = append(errs, metavalidation.ValidateLabelName(t.Key, at.Child("key"))...)
	} else if t.Operator != v1.TolerationOpExists {
		errs = append(errs, field.Invalid(at.Child("operator"), t.Operator,
			"operator must be Exists when `key` is empty, which means \"match all values and all keys\""))
	}
	if t.TolerationSeconds != nil && t.Effect != v1.TaintEffectNoExecute {
		errs = append(errs, field.Invalid(at.Child("effect"), t.Effect,
			"effect must be 'NoExecute' when `tolerationSeconds` is set"))
	}
	if t.Effect != "" {
		errs = append(errs, specvalidation.OneOf(at.Child("effect"), t.Effect, v1.TaintEffectNoSchedule,
			v1.TaintEffectPreferNoSchedule, v1.TaintEffectNoExecute)...)
	}
	return append(errs, tolerationValue(t, at)...)
}

func tolerationValue(t *v1.Toleration, at *field.Path) field.ErrorList {
	value := at.Child("value")
	switch t.Operator {
	case v1.TolerationOpEqual, "":
		return specvalidation.Invalid(value, t.Value, validation.IsValidLabelValue(t.Value))
	case v1.TolerationOpExists:
		if t.Value != "" {
			return field.ErrorList{field.Invalid(value, t.Value, "value must be empty when `operator` is 'Exists'")}
		}
		return nil
	case v1.TolerationOpLt, v1.TolerationOpGt:
		if _, err := strconv.ParseInt(t.Value, 10, 64); err != nil {
			return field.ErrorList{field.Invalid(value, t.Value,
				"value must be an integer when `operator` is 'Lt' or 'Gt'")}
		}
		return nil
	}
	return specvalidation.OneOf(at.Child("operator"), t.Operator, v1.TolerationOpEqual, v1.TolerationOpExists,
		v1.TolerationOpLt, v1.TolerationOpGt)
}
