package validation

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// podContainers has the parts of a pod's spec that the checks of its containers need.
type podContainers struct {
	spec *v1.PodSpec
	// Claims names the pod's resource claims.
	claims Names

	volumes     map[string]*v1.VolumeSource
	volumeNames Names
}

// Containers checks all containers of a pod. claims are the names of the pod's resource claims, and at is the path
// of its spec.
func Containers(s *v1.PodSpec, claims Names, at *field.Path) field.ErrorList {
	p := podContainers{spec: s, claims: claims}
	p.volumes = map[string]*v1.VolumeSource{}
	for i := range p.spec.Volumes {
		p.volumes[p.spec.Volumes[i].Name] = &p.spec.Volumes[i].VolumeSource
		p.volumeNames.Add(p.spec.Volumes[i].Name)
	}
	var errs field.ErrorList
	names := Unique{}
	containers, inits := at.Child("containers"), at.Child("initContainers")
	if len(p.spec.Containers) == 0 {
		errs = append(errs, field.Required(containers, "a pod has at least one container"))
	}
	for i := range p.spec.Containers {
		c, item := &p.spec.Containers[i], containers.Index(i)
		errs = append(errs, names.Check(item.Child("name"), c.Name)...)
		errs = append(errs, p.common(c, item)...)
		errs = append(errs, p.takes(c, item)...)
		errs = append(errs, p.staying(c, item)...)
		errs = append(errs, p.restart(c, false, item)...)
		errs = append(errs, resizePolicy(c.ResizePolicy, p.neverRestarted(c), item.Child("resizePolicy"))...)
	}
	for i := range p.spec.InitContainers {
		c, item := &p.spec.InitContainers[i], inits.Index(i)
		errs = append(errs, names.Check(item.Child("name"), c.Name)...)
		errs = append(errs, p.common(c, item)...)
		errs = append(errs, p.takes(c, item)...)
		errs = append(errs, p.initOnly(c, item)...)
		errs = append(errs, p.restart(c, pod.IsSidecar(c), item)...)
	}
	errs = append(errs, p.ephemeral(names, at.Child("ephemeralContainers"))...)
	return append(errs, p.hostPorts(at)...)
}

// common checks the fields that all kinds of containers may have.
func (p podContainers) common(c *v1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, Label(at.Child("name"), c.Name)...)
	errs = append(errs, imageReference(at.Child("image"), c.Image)...)
	errs = append(errs, OneOf(at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy,
		v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, OneOf(at.Child("imagePullPolicy"), c.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent,
		v1.PullNever)...)
	errs = append(errs, p.env(c.Env, at.Child("env"))...)
	errs = append(errs, envFrom(c.EnvFrom, at.Child("envFrom"))...)
	errs = append(errs, p.mounts(c, at.Child("volumeMounts"))...)
	errs = append(errs, p.devices(c, at.Child("volumeDevices"))...)
	hostUsers := p.spec.HostUsers == nil || *p.spec.HostUsers
	return append(errs, containerSecurity(c.SecurityContext, hostUsers, at.Child("securityContext"))...)
}

// takes checks the ports and resources of a container, which ephemeral containers can't have.
func (p podContainers) takes(c *v1.Container, at *field.Path) field.ErrorList {
	errs := ports(c.Ports, p.spec.HostNetwork, at.Child("ports"))
	return append(errs, containerResources(&c.Resources, &p.claims, at.Child("resources"))...)
}

// staying checks the fields of a container that continues to run after the pod's initialization: probes and hooks.
func (p podContainers) staying(c *v1.Container, at *field.Path) field.ErrorList {
	errs := probes(c, at)
	return append(errs, p.lifecycle(c, at.Child("lifecycle"))...)
}

// initOnly checks the fields with special rules for init containers. Init containers that always restart ("sidecars",
// KEP-753) continue to run, so they can have probes and hooks, and can be resized. Other init containers end early, so
// they can't.
func (p podContainers) initOnly(c *v1.Container, at *field.Path) field.ErrorList {
	policy := at.Child("resizePolicy")
	if pod.IsSidecar(c) {
		errs := p.staying(c, at)
		return append(errs, resizePolicy(c.ResizePolicy, p.neverRestarted(c), policy)...)
	}
	f := forbidden{why: "may not be set for an init container that isn't a sidecar: leave it out, or set " +
		"restartPolicy to Always"}
	f.set(c.Lifecycle != nil, at.Child("lifecycle"))
	f.probes(c, at)
	return append(f.errs, resizePolicy(c.ResizePolicy,
		"an init container that isn't a sidecar is never resized", policy)...)
}

func (f *forbidden) probes(c *v1.Container, at *field.Path) {
	f.set(c.LivenessProbe != nil, at.Child("livenessProbe"))
	f.set(c.ReadinessProbe != nil, at.Child("readinessProbe"))
	f.set(c.StartupProbe != nil, at.Child("startupProbe"))
}
