package reader

import (
	"reflect"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// EditRules are the rules by which InPlace decides about an edit of a pod. The functions get copies only.
type EditRules struct {
	// SetDefaults sets the defaults of a pod.
	SetDefaults func(*v1.Pod)
	// QOSClass returns the quality of service class of a pod that has its defaults.
	QOSClass func(*v1.Pod) v1.PodQOSClass
}

// InPlace reports whether a running pod that was created from old can become new. If not, why is the reason, which
// begins with the first field that can't be changed: "spec.containers[0].command was added".
//
// old and new are pods as in their manifests, without defaults, so that a default that depends on an image doesn't
// count as a change. InPlace changes neither of them.
//
// InPlace compares three pods, and sets the defaults of each of them itself. It can't use the desired pods of the two
// texts instead: Identity.Apply has overwritten their nodeName and tolerations, although a change of these fields makes
// another pod. Storing the texts with defaults would cost memory while the pods run.
func InPlace(old, new *v1.Pod, rules EditRules) (ok bool, why string) {
	was, now, moved := old.DeepCopy(), new.DeepCopy(), old.DeepCopy()
	move(moved, new.DeepCopy())
	for _, p := range []*v1.Pod{was, now, moved} {
		rules.SetDefaults(p)
	}
	// At this point, moved is the old pod with all changes of the new one that can be applied in place.
	why = difference(reflect.ValueOf(moved.ObjectMeta), reflect.ValueOf(now.ObjectMeta), "metadata")
	if why == "" {
		why = difference(reflect.ValueOf(moved.Spec), reflect.ValueOf(now.Spec), "spec")
	}
	if why == "" {
		why = unresizable(was, now, rules.QOSClass)
	}
	return why == "", why
}

// move applies to p those changes of new that are possible in place. p may share memory with new afterwards.
func move(p, new *v1.Pod) {
	p.Labels, p.Annotations = new.Labels, new.Annotations
	s := &p.Spec
	resizable := s.OS == nil || s.OS.Name != v1.Windows // Windows doesn't support resizing
	moveContainers(s.InitContainers, new.Spec.InitContainers, func(c *v1.Container) bool {
		return resizable && pod.IsSidecar(c)
	})
	moveContainers(s.Containers, new.Spec.Containers, func(*v1.Container) bool { return resizable })
	if resizable {
		s.Resources = resized(s.Resources, new.Spec.Resources)
	}
	s.EphemeralContainers = extended(s.EphemeralContainers, new.Spec.EphemeralContainers)
}

// moveContainers applies the changes that are possible in place to one list of containers, as move does for a pod.
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

// extended returns the ephemeral containers of list and the containers that only new has, in new's order. Containers
// that new doesn't have come last.
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
