package validation

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxRestartRules = 20
	maxExitCodes    = 255
	// maxExitCode is the highest exit code of a process in Linux.
	maxExitCode = 255
)

// restart checks a container's own restart policy and rules (KEP-5307). A sidecar always restarts, so the only rule
// that it can have is the one that restarts all containers (KEP-5532).
func (p podContainers) restart(c *v1.Container, sidecar bool, at *field.Path) field.ErrorList {
	errs := OptionalOneOf(at.Child("restartPolicy"), c.RestartPolicy,
		v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
	rules := at.Child("restartPolicyRules")
	if len(c.RestartPolicyRules) == 0 {
		return errs
	}
	if c.RestartPolicy == nil {
		errs = append(errs, field.Required(at.Child("restartPolicy"),
			"must be set beside restartPolicyRules: it holds where no rule matches"))
	}
	if n := len(c.RestartPolicyRules); n > maxRestartRules {
		errs = append(errs, field.TooMany(rules, n, maxRestartRules))
	}
	for i := range c.RestartPolicyRules {
		r, item := &c.RestartPolicyRules[i], rules.Index(i)
		errs = append(errs, action(r.Action, sidecar, item.Child("action"))...)
		errs = append(errs, p.exitCodes(r.ExitCodes, item.Child("exitCodes"))...)
	}
	return errs
}

func action(a v1.ContainerRestartRuleAction, sidecar bool, at *field.Path) field.ErrorList {
	if sidecar && a == v1.ContainerRestartRuleActionRestart {
		return field.ErrorList{field.Forbidden(at,
			"a sidecar restarts anyway: the only action for it is \"RestartAllContainers\"")}
	}
	return OneOf(at, a, v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)
}

func (p podContainers) exitCodes(c *v1.ContainerRestartRuleOnExitCodes, at *field.Path) field.ErrorList {
	if c == nil {
		return field.ErrorList{field.Required(at,
			"must say for which exit codes the rule is, such as {operator: In, values: [42]}")}
	}
	errs := OneOf(at.Child("operator"), c.Operator, v1.ContainerRestartRuleOnExitCodesOpIn,
		v1.ContainerRestartRuleOnExitCodesOpNotIn)
	values := at.Child("values")
	if n := len(c.Values); n > maxExitCodes {
		errs = append(errs, field.TooMany(values, n, maxExitCodes))
	}
	unique := Unique{}
	for i, v := range c.Values {
		errs = append(errs, unique.CheckKey(values.Index(i), strconv.Itoa(int(v)), v)...)
		if p.spec.OS == nil || p.spec.OS.Name != v1.Windows {
			errs = append(errs, Range(values.Index(i), v, 0, maxExitCode)...)
		}
	}
	return errs
}

// neverRestarted returns the reason why a stopped container is never started again; "" if it may be.
func (p podContainers) neverRestarted(c *v1.Container) string {
	switch {
	case p.spec.RestartPolicy == v1.RestartPolicyNever:
		return "the pod's restartPolicy is Never"
	case c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyNever:
		return "the container's restartPolicy is Never"
	}
	return ""
}
