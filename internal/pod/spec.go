package pod

import v1 "k8s.io/api/core/v1"

// ContainerNamed returns the container or init container of this name, or nil.
// Names are unique among both.
func ContainerNamed(p *v1.Pod, name string) *v1.Container {
	for _, list := range [...][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			if list[i].Name == name {
				return &list[i]
			}
		}
	}
	return nil
}

// IsSidecar reports whether an init container goes on running beside the main
// containers (KEP-753: restartPolicy Always).
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}
