package reader

import (
	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

// RulesOf returns the rules of a configuration.
func RulesOf(cfg *config.Config) Rules {
	rules := Rules{SetDefaults: func(p *v1.Pod) {
		spec.SetDefaults(p)
		p.Status.QOSClass = spec.QOSClass(p) // as an API server does when a pod is created
	}, Validate: spec.Validate, QOSClass: spec.QOSClass}
	if !cfg.Standalone {
		// As with the kubelet, the mirror pod of a static pod never changes.
		rules.Recreate = "in a cluster, a changed manifest is another pod"
		if cfg.Gates.Enabled(gates.PreventStaticPodAPIReferences) {
			rules.Refuse = spec.APIReferences
		}
	}
	return rules
}

// AdditionRules returns the rules for containers that are added to running pods. refuses and unsupported are
// AdditionRules.Refuses and AdditionRules.Unsupported.
func AdditionRules(cfg *config.Config, refuses func(*v1.Pod) *pod.Failure,
	unsupported func(*v1.Pod, *v1.Container) *pod.Failure) desired.AdditionRules {
	rules := RulesOf(cfg)
	return desired.AdditionRules{SetDefaults: rules.SetDefaults, Refuses: refuses, Unsupported: unsupported,
		Validate: func(p *v1.Pod) field.ErrorList {
			wrong := rules.Validate(p)
			if rules.Refuse != nil {
				wrong = append(wrong, rules.Refuse(p)...)
			}
			for i := range p.Spec.EphemeralContainers { // the image of an added container can't be corrected later
				image := p.Spec.EphemeralContainers[i].Image
				if _, err := reference.ParseNormalizedNamed(image); err != nil {
					wrong = append(wrong, field.Invalid(
						field.NewPath("spec", "ephemeralContainers").Index(i).Child("image"), image, err.Error()))
				}
			}
			return wrong
		}}
}
