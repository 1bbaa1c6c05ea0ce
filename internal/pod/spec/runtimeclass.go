package spec

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

func runtimeClass(c *nodev1.RuntimeClass) field.ErrorList {
	errs := validation.Label(field.NewPath("handler"), c.Handler)
	if c.Overhead != nil {
		errs = append(errs, validation.ResourceList(c.Overhead.PodFixed, field.NewPath("overhead", "podFixed"))...)
	}
	if s := c.Scheduling; s != nil {
		// These settings are copied to pods, where the fields have the same names.
		spec := &v1.PodSpec{NodeSelector: s.NodeSelector, Tolerations: s.Tolerations}
		errs = append(errs, scheduling(spec, field.NewPath("scheduling"))...)
	}
	return errs
}

// ApplyRuntimeClass sets the overhead and the scheduling settings of a pod's RuntimeClass in the pod's spec, in place,
// like the admission of an API server (KEP-688, and the API's comments on RuntimeClass). It is idempotent. If the pod
// contradicts its class, conflict names the field, and the caller has to discard s, which may be partly changed.
func ApplyRuntimeClass(s *v1.PodSpec, class *nodev1.RuntimeClass) (conflict string) {
	if why := admitOverhead(s, class); why != "" || class.Scheduling == nil {
		return why
	}
	return admitScheduling(s, class)
}

func admitOverhead(s *v1.PodSpec, class *nodev1.RuntimeClass) (conflict string) {
	var overhead v1.ResourceList
	if class.Overhead != nil {
		overhead = class.Overhead.PodFixed
	}
	if s.Overhead == nil {
		s.Overhead = overhead.DeepCopy()
		return ""
	}
	if !equality.Semantic.DeepEqual(s.Overhead, overhead) {
		return fmt.Sprintf("its spec.overhead isn't that of RuntimeClass %s, overhead.podFixed; leave it out, and "+
			"the pod gets the class'", class.Name)
	}
	return ""
}

func admitScheduling(s *v1.PodSpec, class *nodev1.RuntimeClass) (conflict string) {
	for _, key := range slices.Sorted(maps.Keys(class.Scheduling.NodeSelector)) {
		want := class.Scheduling.NodeSelector[key]
		if has, given := s.NodeSelector[key]; given && has != want {
			return fmt.Sprintf("its spec.nodeSelector[%s] is %q, but RuntimeClass %s wants %q", key, has, class.Name,
				want)
		}
		if s.NodeSelector == nil {
			s.NodeSelector = map[string]string{}
		}
		s.NodeSelector[key] = want
	}
	for _, t := range class.Scheduling.Tolerations {
		if !slices.ContainsFunc(s.Tolerations, func(has v1.Toleration) bool {
			return equality.Semantic.DeepEqual(has, t)
		}) {
			s.Tolerations = append(s.Tolerations, t)
		}
	}
	return ""
}
