// Package container validates a pod's containers: regular ones and init
// containers, with their ports, environment, mounts, probes and hooks.
package container

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/resources"
	"github.com/deckhand-node/deckhand/internal/podspec/rule"
	"github.com/deckhand-node/deckhand/internal/podspec/security"
)

// Pod is what the containers of one pod need to know of it.
type Pod struct {
	Spec *v1.PodSpec
	// Claims names the pod's resource claims.
	Claims map[string]bool

	volumes map[string]*v1.VolumeSource
}

// Validate checks all containers of the pod; at is the path of its spec.
func (p Pod) Validate(at *field.Path) field.ErrorList {
	p.volumes = map[string]*v1.VolumeSource{}
	for i := range p.Spec.Volumes {
		p.volumes[p.Spec.Volumes[i].Name] = &p.Spec.Volumes[i].VolumeSource
	}
	var errs field.ErrorList
	names := rule.Unique{}
	containers, inits := at.Child("containers"), at.Child("initContainers")
	if len(p.Spec.Containers) == 0 {
		errs = append(errs, field.Required(containers, "a pod has at least one container"))
	}
	for i := range p.Spec.Containers {
		c, item := &p.Spec.Containers[i], containers.Index(i)
		errs = append(errs, names.Check(item.Child("name"), c.Name)...)
		errs = append(errs, p.common(c, item)...)
		errs = append(errs, p.probes(c, item)...)
		errs = append(errs, p.lifecycle(c.Lifecycle, item.Child("lifecycle"))...)
		errs = append(errs, restart(c, false, item)...)
	}
	for i := range p.Spec.InitContainers {
		c, item := &p.Spec.InitContainers[i], inits.Index(i)
		errs = append(errs, names.Check(item.Child("name"), c.Name)...)
		errs = append(errs, p.common(c, item)...)
		errs = append(errs, p.initOnly(c, item)...)
		// Init containers run one after the other, so their host ports meet nobody's.
		errs = append(errs, hostPorts(p.Spec.InitContainers[i:i+1], func(int) *field.Path { return item })...)
	}
	errs = append(errs, hostPorts(p.Spec.Containers, containers.Index)...)
	if len(p.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(at.Child("ephemeralContainers"), "a static pod can't have any: they are added to a running pod"))
	}
	return errs
}

// common checks what all kinds of containers have.
func (p Pod) common(c *v1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, rule.Label(at.Child("name"), c.Name)...)
	errs = append(errs, rule.Image(at.Child("image"), c.Image)...)
	errs = append(errs, rule.OneOf(at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy, v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, rule.OneOf(at.Child("imagePullPolicy"), c.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)...)
	errs = append(errs, ports(c.Ports, p.Spec.HostNetwork, at.Child("ports"))...)
	errs = append(errs, p.env(c.Env, at.Child("env"))...)
	errs = append(errs, envFrom(c.EnvFrom, at.Child("envFrom"))...)
	errs = append(errs, p.mounts(c, at.Child("volumeMounts"))...)
	errs = append(errs, p.devices(c, at.Child("volumeDevices"))...)
	errs = append(errs, resources.Container(&c.Resources, p.Claims, at.Child("resources"))...)
	errs = append(errs, resources.ResizePolicy(c.ResizePolicy, p.Spec.RestartPolicy, at.Child("resizePolicy"))...)
	hostUsers := p.Spec.HostUsers == nil || *p.Spec.HostUsers
	return append(errs, security.Container(c.SecurityContext, hostUsers, at.Child("securityContext"))...)
}

// initOnly checks what differs in init containers: those that always restart
// ("sidecars", KEP-753) go on running, so they can have probes and hooks; the
// others end before anything could be probed.
func (p Pod) initOnly(c *v1.Container, at *field.Path) field.ErrorList {
	sidecar := c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
	errs := restart(c, sidecar, at)
	if sidecar {
		errs = append(errs, p.probes(c, at)...)
		return append(errs, p.lifecycle(c.Lifecycle, at.Child("lifecycle"))...)
	}
	const why = "may not be set for init containers without restartPolicy=Always"
	for _, f := range []struct {
		set  bool
		name string
	}{
		{c.Lifecycle != nil, "lifecycle"}, {c.LivenessProbe != nil, "livenessProbe"},
		{c.ReadinessProbe != nil, "readinessProbe"}, {c.StartupProbe != nil, "startupProbe"},
	} {
		if f.set {
			errs = append(errs, field.Forbidden(at.Child(f.name), why))
		}
	}
	return errs
}
