package resources

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/rule"
)

// ResizePolicy validates what a container does when its resources are resized
// (KEP-1287). A pod that never restarts can't be resized by a restart.
func ResizePolicy(policies []v1.ContainerResizePolicy, restart v1.RestartPolicy, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	unique := rule.Unique{}
	for i, p := range policies {
		item := at.Index(i)
		errs = append(errs, rule.OneOf(item.Child("resourceName"), p.ResourceName, v1.ResourceCPU, v1.ResourceMemory)...)
		errs = append(errs, unique.Check(item.Child("resourceName"), string(p.ResourceName))...)
		errs = append(errs, rule.OneOf(item.Child("restartPolicy"), p.RestartPolicy, v1.NotRequired, v1.RestartContainer)...)
		if restart == v1.RestartPolicyNever && p.RestartPolicy == v1.RestartContainer {
			errs = append(errs, field.Invalid(item.Child("restartPolicy"), p.RestartPolicy, "must be 'NotRequired' when `restartPolicy` is 'Never'"))
		}
	}
	return errs
}
