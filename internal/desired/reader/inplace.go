package reader

import (
	"reflect"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// EditRules are what has to be known about pods to decide about an edit. The functions are
// given copies only.
type EditRules struct {
	// SetDefaults fills in what a pod leaves out.
	SetDefaults func(*v1.Pod)
	// QOSClass is the quality of service class of a pod that has its defaults.
	QOSClass func(*v1.Pod) v1.PodQOSClass
}

// InPlace reports whether a pod that was made from old can become new while it
// runs. If not, why says what stands in the way, beginning with the first field that
// does: "spec.containers[0].command was added".
//
// Both are pods as their author wrote them, before defaults, so that a default that
// follows from an image isn't taken for a change of its own. Neither is changed.
func InPlace(old, new *v1.Pod, rules EditRules) (ok bool, why string) {
	was, now, moved := old.DeepCopy(), new.DeepCopy(), old.DeepCopy()
	move(moved, new.DeepCopy())
	for _, p := range []*v1.Pod{was, now, moved} {
		rules.SetDefaults(p)
	}
	// Now moved is the old pod with everything of the new one that may be brought to it.
	why = difference(reflect.ValueOf(moved.ObjectMeta), reflect.ValueOf(now.ObjectMeta), "metadata")
	if why == "" {
		why = difference(reflect.ValueOf(moved.Spec), reflect.ValueOf(now.Spec), "spec")
	}
	if why == "" {
		why = unresizable(was, now, rules.QOSClass)
	}
	return why == "", why
}

// move sets in p what may change in place to what it is in new, which it may share
// memory with afterwards.
func move(p, new *v1.Pod) {
	p.Labels, p.Annotations = new.Labels, new.Annotations
	s := &p.Spec
	resizable := s.OS == nil || s.OS.Name != v1.Windows // which knows no resizing
	moveContainers(s.InitContainers, new.Spec.InitContainers, func(c *v1.Container) bool {
		return resizable && pod.IsSidecar(c)
	})
	moveContainers(s.Containers, new.Spec.Containers, func(*v1.Container) bool { return resizable })
	if resizable {
		s.Resources = resized(s.Resources, new.Spec.Resources)
	}
	s.EphemeralContainers = extended(s.EphemeralContainers, new.Spec.EphemeralContainers)
}

// moveContainers does the part of move that is about one list of containers.
func moveContainers(list, new []v1.Container, resizable func(*v1.Container) bool) {
	for i := range min(len(list), len(new)) {
		c := &list[i]
		if c.Name != new[i].Name {
			continue
		}
		c.Image = new[i].Image
		if resizable(c) {
			c.Resources = *resized(&c.Resources, &new[i].Resources)
		}
	}
}

// extended is a list of ephemeral containers with those added that only new has, in
// new's order. Those that new doesn't have come last.
func extended(list, new []v1.EphemeralContainer) []v1.EphemeralContainer {
	out := make([]v1.EphemeralContainer, 0, len(new))
	known := make(map[string]v1.EphemeralContainer, len(list))
	for _, c := range list {
		known[c.Name] = c
	}
	for _, c := range new {
		if before, ok := known[c.Name]; ok {
			delete(known, c.Name)
			c = before
		}
		out = append(out, c)
	}
	for _, c := range list {
		if _, gone := known[c.Name]; gone {
			out = append(out, c)
		}
	}
	return out
}
