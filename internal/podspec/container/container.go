// Package container validates a pod's containers: regular ones, init containers
// and ephemeral ones, with their ports, environment, mounts, probes and hooks.
package container

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/podspec/resources"
	"github.com/deckhand-node/deckhand/internal/podspec/rule"
	"github.com/deckhand-node/deckhand/internal/podspec/security"
)

// Pod is what the containers of one pod need to know of it.
type Pod struct {
	Spec *v1.PodSpec
	// Claims names the pod's resource claims.
	Claims rule.Names

	volumes     map[string]*v1.VolumeSource
	volumeNames rule.Names
}

// Validate checks all containers of the pod; at is the path of its spec.
func (p Pod) Validate(at *field.Path) field.ErrorList {
	p.volumes = map[string]*v1.VolumeSource{}
	for i := range p.Spec.Volumes {
		p.volumes[p.Spec.Volumes[i].Name] = &p.Spec.Volumes[i].VolumeSource
		p.volumeNames.Add(p.Spec.Volumes[i].Name)
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
		errs = append(errs, p.takes(c, item)...)
		errs = append(errs, p.staying(c, item)...)
		errs = append(errs, p.restart(c, false, item)...)
		errs = append(errs, resources.ResizePolicy(c.ResizePolicy, p.neverRestarted(c), item.Child("resizePolicy"))...)
	}
	for i := range p.Spec.InitContainers {
		c, item := &p.Spec.InitContainers[i], inits.Index(i)
		errs = append(errs, names.Check(item.Child("name"), c.Name)...)
		errs = append(errs, p.common(c, item)...)
		errs = append(errs, p.takes(c, item)...)
		errs = append(errs, p.initOnly(c, item)...)
		errs = append(errs, p.restart(c, pod.IsSidecar(c), item)...)
	}
	errs = append(errs, p.ephemeral(names, at.Child("ephemeralContainers"))...)
	return append(errs, p.hostPorts(at)...)
}

// common checks what all kinds of containers have.
func (p Pod) common(c *v1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, rule.Label(at.Child("name"), c.Name)...)
	errs = append(errs, rule.Image(at.Child("image"), c.Image)...)
	errs = append(errs, rule.OneOf(at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy, v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)...)
	errs = append(errs, rule.OneOf(at.Child("imagePullPolicy"), c.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)...)
	errs = append(errs, p.env(c.Env, at.Child("env"))...)
	errs = append(errs, envFrom(c.EnvFrom, at.Child("envFrom"))...)
	errs = append(errs, p.mounts(c, at.Child("volumeMounts"))...)
	errs = append(errs, p.devices(c, at.Child("volumeDevices"))...)
	hostUsers := p.Spec.HostUsers == nil || *p.Spec.HostUsers
	return append(errs, security.Container(c.SecurityContext, hostUsers, at.Child("securityContext"))...)
}

// takes checks what a container takes of its pod and node, which an ephemeral
// one can't.
func (p Pod) takes(c *v1.Container, at *field.Path) field.ErrorList {
	errs := ports(c.Ports, p.Spec.HostNetwork, at.Child("ports"))
	return append(errs, resources.Container(&c.Resources, &p.Claims, at.Child("resources"))...)
}

// staying checks what a container can have that goes on running once the pod is
// initialized: probes and hooks.
func (p Pod) staying(c *v1.Container, at *field.Path) field.ErrorList {
	errs := probes(c, at)
	return append(errs, p.lifecycle(c, at.Child("lifecycle"))...)
}

// initOnly checks what differs in init containers: those that always restart
// ("sidecars", KEP-753) go on running, so they can have probes and hooks and be
// resized; the others end before anything could be probed or resized.
func (p Pod) initOnly(c *v1.Container, at *field.Path) field.ErrorList {
	policy := at.Child("resizePolicy")
	if pod.IsSidecar(c) {
		errs := p.staying(c, at)
		return append(errs, resources.ResizePolicy(c.ResizePolicy, p.neverRestarted(c), policy)...)
	}
	f := forbidden{why: "may not be set for an init container that isn't a sidecar: leave it out, or set restartPolicy to Always"}
	f.add(c.Lifecycle != nil, at.Child("lifecycle"))
	f.probes(c, at)
	return append(f.errs, resources.ResizePolicy(c.ResizePolicy, "an init container that isn't a sidecar is never resized", policy)...)
}

// forbidden collects the fields that are set and mustn't be.
type forbidden struct {
	why  string
	errs field.ErrorList
}

func (f *forbidden) add(set bool, at *field.Path) {
	if set {
		f.errs = append(f.errs, field.Forbidden(at, f.why))
	}
}

func (f *forbidden) probes(c *v1.Container, at *field.Path) {
	f.add(c.LivenessProbe != nil, at.Child("livenessProbe"))
	f.add(c.ReadinessProbe != nil, at.Child("readinessProbe"))
	f.add(c.StartupProbe != nil, at.Child("startupProbe"))
}
