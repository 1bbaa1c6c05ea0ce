package objectspec

import (
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/resources"
	"github.com/deckhand-node/deckhand/internal/podspec/rule"
	"github.com/deckhand-node/deckhand/internal/podspec/scheduling"
)

func runtimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	errs := rule.Label(field.NewPath("handler"), c.Handler)
	if c.Overhead != nil {
		errs = append(errs, resources.List(c.Overhead.PodFixed, field.NewPath("overhead", "podFixed"))...)
	}
	if s := c.Scheduling; s != nil {
		// They become a pod's, and have the same names there.
		spec := &v1.PodSpec{NodeSelector: s.NodeSelector, Tolerations: s.Tolerations}
		errs = append(errs, scheduling.Validate(spec, field.NewPath("scheduling"))...)
	}
	return errs
}
