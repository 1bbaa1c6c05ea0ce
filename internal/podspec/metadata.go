package podspec

import (
	"strconv"

	v1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/security"
)

func metadata(p *v1.Pod, at *field.Path) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&p.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, at)
	for _, e := range errs {
		if e.Detail == "" {
			e.Detail = "must be set" // apimachinery says no more than "Required value"
		}
	}
	annotations := at.Child("annotations")
	if cost, ok := p.Annotations[v1.PodDeletionCost]; ok {
		if _, err := strconv.ParseInt(cost, 10, 32); err != nil || cost[0] == '+' {
			errs = append(errs, field.Invalid(annotations.Key(v1.PodDeletionCost), cost, "must be a 32bit integer"))
		}
	}
	return append(errs, security.AppArmorAnnotations(p.Annotations, containersByName(&p.Spec), annotations)...)
}

func containersByName(s *v1.PodSpec) map[string]*v1.Container {
	byName := make(map[string]*v1.Container, len(s.InitContainers)+len(s.Containers))
	for _, list := range [][]v1.Container{s.InitContainers, s.Containers} {
		for i := range list {
			byName[list[i].Name] = &list[i]
		}
	}
	return byName
}
