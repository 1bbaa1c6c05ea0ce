package desired

import (
	"fmt"

	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

// admission is what a RuntimeClass made of a pod, as the admission of an API server does.
//
// It follows from the pod and the class as they are, so that it is the same after a restart.
// A cluster knows it from the pod's creation on; here a class that is edited changes the
// pods of that class. A pod that contradicts its class by then stays as its manifest has it:
// an API server, too, refuses new pods only. It gets no new sandbox (see package executor).
type admission struct {
	// class is what it was made with; nil if the pod has none, or none that is defined.
	class *nodev1.RuntimeClass
	made  *pod.Desired
	// conflict is how the pod contradicts its class; empty if it doesn't.
	conflict string
}

// admit returns what the pod's RuntimeClass makes of it, if no API server has admitted it. What old has for the very
// same pod and class is taken from there.
func (s *Set) admit(d *pod.Desired, old *Set) admission {
	name := d.Pod.Spec.RuntimeClassName
	if name == nil || !d.Source.Local() {
		return admission{made: d}
	}
	a := admission{class: s.class(*name), made: d}
	if before, known := old.admitted[d]; known && before.class == a.class {
		a = before
	} else if a.class != nil {
		a.made, a.conflict = withClass(d, a.class)
	}
	s.admitted[d] = a
	return a
}

// class is the RuntimeClass of this name: the same pointer until it is edited; nil for none.
func (s *Set) class(name string) *nodev1.RuntimeClass {
	d := s.Objects.Get(object.Key{Kind: object.RuntimeClass, Name: name})
	if d == nil {
		return nil
	}
	class, _ := d.Object().(*nodev1.RuntimeClass)
	return class
}

// withClass returns the pod as its class makes it; the pod itself if that changes
// nothing, or if it contradicts its class.
func withClass(d *pod.Desired, class *nodev1.RuntimeClass) (made *pod.Desired, conflict string) {
	p := d.Pod.DeepCopy()
	conflict = spec.ApplyRuntimeClass(&p.Spec, class)
	if conflict != "" || equality.Semantic.DeepEqual(p.Spec, d.Pod.Spec) {
		return d, conflict
	}
	next := *d
	next.Pod = p
	return &next, ""
}

// conflicting is the problem that a pod contradicts its RuntimeClass.
func conflicting(c Claim, why string) pod.Problem {
	name := c.Desired.Pod.Namespace + "/" + c.Desired.Pod.Name
	return pod.Problem{
		Source:  c.Desired.Source,
		Origin:  c.Desired.Origin,
		Pod:     name,
		Message: fmt.Sprintf("pod %s can't be started (if it runs, it runs on): %s", name, why),
		Since:   c.Since,
	}
}
