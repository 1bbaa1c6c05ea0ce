package resources

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/rule"
)

// ResizePolicy validates what a container does when its resources are resized
// (KEP-1287). noRestart says why it can't be resized by a restart; "" if it can.
//
// A resource that isn't listed is resized without a restart. That isn't filled
// in: an API server doesn't either, since 1.33.
func ResizePolicy(policies []v1.ContainerResizePolicy, noRestart string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	unique := rule.Unique{}
	for i, p := range policies {
		name, restart := at.Index(i).Child("resourceName"), at.Index(i).Child("restartPolicy")
		errs = append(errs, rule.OneOf(name, p.ResourceName, v1.ResourceCPU, v1.ResourceMemory)...)
		errs = append(errs, unique.Check(name, string(p.ResourceName))...)
		if p.RestartPolicy == v1.RestartContainer && noRestart != "" {
			errs = append(errs, field.Invalid(restart, p.RestartPolicy, fmt.Sprintf("must be %q: %s", v1.NotRequired, noRestart)))
			continue
		}
		errs = append(errs, rule.OneOf(restart, p.RestartPolicy, v1.NotRequired, v1.RestartContainer)...)
	}
	return errs
}
