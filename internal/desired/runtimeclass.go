package desired

import (
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/deckhand-node/deckhand/internal/objects"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// admission is what a RuntimeClass made of a pod, as the admission of an API server does
// (KEP-688, and the API's comments on RuntimeClass): the pod gets the class' overhead
// and what it says to the scheduler.
//
// It follows from the pod and the class as they are, so that it is the same after a restart.
// A cluster knows it from the pod's creation on; here a class that is edited changes the
// pods of that class.
type admission struct {
	// class is what it was made with; nil if the pod has none, or none that is defined.
	class *objects.Desired
	made  *pod.Desired
	// refused is why the pod may not run; empty if it may.
	refused string
}

// admit returns what the pod's RuntimeClass makes of it. What old has for the very
// same pod and class is taken from there.
func (s *Set) admit(d *pod.Desired, old *Set) admission {
	name := d.Pod.Spec.RuntimeClassName
	if name == nil {
		return admission{made: d}
	}
	a := admission{class: s.Objects.Get(objects.Key{Kind: objects.RuntimeClass, Name: *name}), made: d}
	if before, known := old.admitted[d]; known && before.class == a.class {
		a = before
	} else if class, ok := classOf(a.class); ok {
		a.made, a.refused = withClass(d, class)
	}
	s.admitted[d] = a
	return a
}

func classOf(d *objects.Desired) (*nodev1.RuntimeClass, bool) {
	if d == nil {
		return nil, false
	}
	class, ok := d.Object().(*nodev1.RuntimeClass)
	return class, ok
}

// withClass returns the pod as its class makes it, the pod itself if that changes
// nothing, or why the pod may not run.
func withClass(d *pod.Desired, class *nodev1.RuntimeClass) (made *pod.Desired, refused string) {
	p := d.Pod.DeepCopy()
	if why := applyOverhead(&p.Spec, class); why != "" {
		return d, why
	}
	if class.Scheduling != nil {
		if why := applyScheduling(&p.Spec, class); why != "" {
			return d, why
		}
	}
	if equality.Semantic.DeepEqual(p.Spec, d.Pod.Spec) {
		return d, ""
	}
	next := *d
	next.Pod = p
	return &next, ""
}

func applyOverhead(s *v1.PodSpec, class *nodev1.RuntimeClass) (refused string) {
	var overhead v1.ResourceList
	if class.Overhead != nil {
		overhead = class.Overhead.PodFixed
	}
	if s.Overhead == nil {
		s.Overhead = overhead.DeepCopy()
		return ""
	}
	if !equality.Semantic.DeepEqual(s.Overhead, overhead) {
		return fmt.Sprintf("its spec.overhead isn't that of RuntimeClass %s, overhead.podFixed; leave it out, and the pod gets the class'", class.Name)
	}
	return ""
}

func applyScheduling(s *v1.PodSpec, class *nodev1.RuntimeClass) (refused string) {
	for _, key := range slices.Sorted(maps.Keys(class.Scheduling.NodeSelector)) {
		want := class.Scheduling.NodeSelector[key]
		if has, given := s.NodeSelector[key]; given && has != want {
			return fmt.Sprintf("its spec.nodeSelector[%s] is %q, but RuntimeClass %s wants %q", key, has, class.Name, want)
		}
		if s.NodeSelector == nil {
			s.NodeSelector = map[string]string{}
		}
		s.NodeSelector[key] = want
	}
	for _, t := range class.Scheduling.Tolerations {
		if !slices.ContainsFunc(s.Tolerations, func(has v1.Toleration) bool { return equality.Semantic.DeepEqual(has, t) }) {
			s.Tolerations = append(s.Tolerations, t)
		}
	}
	return ""
}

// refused tells that a pod isn't run for what its RuntimeClass says.
func refused(c Claim, why string) pod.Problem {
	name := c.Desired.Pod.Namespace + "/" + c.Desired.Pod.Name
	return pod.Problem{
		Source:  c.Desired.Source,
		Origin:  c.Desired.Origin,
		Pod:     name,
		Message: fmt.Sprintf("pod %s isn't run: %s", name, why),
		Since:   c.Since,
	}
}
