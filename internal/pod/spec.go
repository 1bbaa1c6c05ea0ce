package pod

import (
	"fmt"
	"iter"
	"slices"
	"strings"

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
			// The API keeps the fields of the two types identical, so that this conversion is possible.
			return (*v1.Container)(&e.EphemeralContainerCommon)
		}
	}
	return nil
}

// Mounts reports whether a container mounts the pod's volume of this name.
func Mounts(c *v1.Container, volume string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m v1.VolumeMount) bool { return m.Name == volume })
}

// UsesVolume reports whether a container mounts the pod's volume of this name, or has it as a device.
func UsesVolume(c *v1.Container, volume string) bool {
	return Mounts(c, volume) ||
		slices.ContainsFunc(c.VolumeDevices, func(d v1.VolumeDevice) bool { return d.Name == volume })
}

// IsSidecar reports whether an init container is a sidecar, which continues to run beside the main containers
// (KEP-753: restartPolicy Always).
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}

// IsEphemeral reports whether the pod's container of this name is an ephemeral container.
func IsEphemeral(p *v1.Pod, name string) bool {
	return slices.ContainsFunc(p.Spec.EphemeralContainers, func(e v1.EphemeralContainer) bool { return e.Name == name })
}

// ContainerType is the type of a container of the pod in the kubelet's metrics: container, init_container or
// ephemeral_container.
func ContainerType(p *v1.Pod, name string) string {
	named := func(c v1.Container) bool { return c.Name == name }
	switch {
	case slices.ContainsFunc(p.Spec.InitContainers, named):
		return "init_container"
	case slices.ContainsFunc(p.Spec.Containers, named):
		return "container"
	}
	return "ephemeral_container"
}

// ContainerNames lists the names of all containers of the pod: first init containers, then main, then ephemeral
// containers.
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

// LongRunning lists the containers that run at the same time: first the sidecars, then the main containers.
func LongRunning(p *v1.Pod) []*v1.Container {
	var list []*v1.Container
	for i := range p.Spec.InitContainers {
		if c := &p.Spec.InitContainers[i]; IsSidecar(c) {
			list = append(list, c)
		}
	}
	for i := range p.Spec.Containers {
		list = append(list, &p.Spec.Containers[i])
	}
	return list
}

// Priority is v1.PodSpec.Priority. It is 0 if that is unset, as for a pod without a PriorityClass.
func Priority(p *v1.Pod) int32 {
	if p.Spec.Priority == nil {
		return 0
	}
	return *p.Spec.Priority
}

// BlockVolume is a volume that a container uses as a block device.
type BlockVolume struct {
	// HostPath is the device's file on the host, or a link to it.
	HostPath string
	ReadOnly bool
}

// StrictGroups reports whether the pod's processes get only the groups in its spec, and none from /etc/group in the
// image (supplementalGroupsPolicy Strict, KEP-3619).
func StrictGroups(p *v1.Pod) bool {
	sc := p.Spec.SecurityContext
	return sc != nil && sc.SupplementalGroupsPolicy != nil &&
		*sc.SupplementalGroupsPolicy == v1.SupplementalGroupsPolicyStrict
}

// AppArmorProfile is the AppArmor profile that the pod requests for the container: the profile in the container's
// security context, else in the deprecated annotation for the container, else in the pod's security context. It is nil
// if the pod requests none. An invalid annotation is an error.
func AppArmorProfile(p *v1.Pod, c *v1.Container) (*v1.AppArmorProfile, error) {
	if sc := c.SecurityContext; sc != nil && sc.AppArmorProfile != nil {
		return sc.AppArmorProfile, nil
	}
	if value, ok := p.Annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name]; ok && value != "" {
		return annotatedProfile(value)
	}
	if sc := p.Spec.SecurityContext; sc != nil {
		return sc.AppArmorProfile, nil
	}
	return nil, nil
}

func annotatedProfile(value string) (*v1.AppArmorProfile, error) {
	switch value {
	case v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}, nil
	case v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}, nil
	}
	if name, ok := strings.CutPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix); ok {
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}, nil
	}
	return nil, fmt.Errorf(`the AppArmor profile %q of its annotation is none: use "runtime/default", "unconfined" or "localhost/NAME", or better the field appArmorProfile`, value)
}

// IsExtendedResource reports whether a resource is an extended resource, which a device plugin or an administrator
// adds to nodes (https://kubernetes.io/docs/concepts/configuration/manage-resources-containers/#extended-resources).
func IsExtendedResource(name v1.ResourceName) bool {
	domain, _, ok := strings.Cut(string(name), "/")
	return ok && !strings.HasSuffix(domain, "kubernetes.io") && !strings.HasPrefix(domain, "requests.")
}
