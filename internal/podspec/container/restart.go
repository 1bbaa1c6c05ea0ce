package container

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/rule"
)

const (
	maxRestartRules = 20
	maxExitCodes    = 255
)

// restart checks a container's own restart policy and rules (KEP-5307). A
// sidecar restarts anyway, so the only rule for it is the one that restarts all
// containers (KEP-5532).
func restart(c *v1.Container, sidecar bool, at *field.Path) field.ErrorList {
	errs := rule.OptionalOneOf(at.Child("restartPolicy"), c.RestartPolicy,
		v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
	rules := at.Child("restartPolicyRules")
	if len(c.RestartPolicyRules) == 0 {
		return errs
	}
	if c.RestartPolicy == nil {
		errs = append(errs, field.Required(at.Child("restartPolicy"), "must be set when `restartPolicyRules` are"))
	}
	if n := len(c.RestartPolicyRules); n > maxRestartRules {
		errs = append(errs, field.TooMany(rules, n, maxRestartRules))
	}
	for i := range c.RestartPolicyRules {
		r, item := &c.RestartPolicyRules[i], rules.Index(i)
		errs = append(errs, rule.OneOf(item.Child("action"), r.Action, v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)...)
		if sidecar && r.Action == v1.ContainerRestartRuleActionRestart {
			errs = append(errs, field.Forbidden(item.Child("action"), "an init container with restartPolicy=Always restarts anyway"))
		}
		errs = append(errs, exitCodes(r.ExitCodes, item.Child("exitCodes"))...)
	}
	return errs
}

func exitCodes(c *v1.ContainerRestartRuleOnExitCodes, at *field.Path) field.ErrorList {
	if c == nil {
		return field.ErrorList{field.Required(at, "must be specified")}
	}
	errs := rule.OneOf(at.Child("operator"), c.Operator, v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)
	values := at.Child("values")
	if n := len(c.Values); n > maxExitCodes {
		errs = append(errs, field.TooMany(values, n, maxExitCodes))
	}
	seen := map[int32]bool{}
	for i, v := range c.Values {
		if seen[v] {
			errs = append(errs, field.Duplicate(values.Index(i), v))
		}
		seen[v] = true
	}
	return errs
}
