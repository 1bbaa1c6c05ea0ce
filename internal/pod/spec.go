package pod

import (
	"iter"

	v1 "k8s.io/api/core/v1"
)

// ContainerNamed returns the container, init container or ephemeral container of
// this name, or nil. Names are unique among them.
func ContainerNamed(p *v1.Pod, name string) *v1.Container {
	for _, list := range [...][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	for i := range p.Spec.EphemeralContainers {
		if e := &p.Spec.EphemeralContainers[i]; e.Name == name {
			// The API keeps the two types alike for this conversion.
			return (*v1.Container)(&e.EphemeralContainerCommon)
		}
	}
	return nil
}

// IsSidecar reports whether an init container goes on running beside the main
// containers (KEP-753: restartPolicy Always).
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// ContainerNames lists the names of all containers: init, main, ephemeral.
func ContainerNames(p *v1.Pod) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, list := range [...][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if !yield(list[i].Name) {
					return
				}
			}
		}
		for i := range p.Spec.EphemeralContainers {
			if !yield(p.Spec.EphemeralContainers[i].Name) {
				return
			}
		}
	}
}
