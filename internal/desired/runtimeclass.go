package desired

import (
	"fmt"

	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

// admission is the result of applying a RuntimeClass to a pod, like the RuntimeClass admission of an API server.
//
// It depends only on the current pod and class, so that it is the same after a restart. In a cluster a pod keeps the
// result from its creation; here an edit of a class changes the pods of that class. A pod that conflicts with its
// edited class keeps the spec of its manifest: an API server, too, rejects only new pods. Such a pod gets no new
// sandbox (see package executor).
type admission struct {
	// class is the class that was applied; nil if the pod names no class, or if the class isn't defined.
	class *nodev1.RuntimeClass
	made  *pod.Desired
	// conflict is how the pod conflicts with its class; empty if it doesn't.
	conflict string
}

// admit applies the pod's RuntimeClass, unless an API server has admitted the pod. It reuses the result in old for
// the same pod and class.
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

// class is the RuntimeClass of this name, with the same pointer until it is edited; nil if there is none.
func (s *Set) class(name string) *nodev1.RuntimeClass {
	d := s.Objects.Get(object.Key{Kind: object.RuntimeClass, Name: name})
	if d == nil {
		return nil
	}
	class, _ := d.Object().(*nodev1.RuntimeClass)
	return class
}

// withClass returns the pod with its class applied; the pod itself if that changes nothing or conflicts.
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

// conflicting is the problem of a pod that conflicts with its RuntimeClass.
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
