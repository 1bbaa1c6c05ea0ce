package spec

import (
	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
)

func container(c *v1.Container, hostNetwork bool) {
	orDefault(&c.ImagePullPolicy, pullPolicy(c.Image))
	orDefault(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	orDefault(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	for i := range c.Ports {
		orDefault(&c.Ports[i].Protocol, v1.ProtocolTCP)
		if hostNetwork {
			orDefault(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		env(c.Env[i].ValueFrom)
	}
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	requestsFromLimits(&c.Resources)
	for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		probe(p)
	}
	if c.Lifecycle != nil {
		hook(c.Lifecycle.PostStart)
		hook(c.Lifecycle.PreStop)
	}
}

// pullPolicy returns the default pull policy of an image. It is Always for an image with the tag "latest", or with
// neither tag nor digest (https://kubernetes.io/docs/concepts/containers/images/#imagepullpolicy-defaulting).
func pullPolicy(image string) v1.PullPolicy {
	ref, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent
	}
	if _, ok := ref.(reference.Digested); ok {
		return v1.PullIfNotPresent
	}
	if tagged, ok := reference.TagNameOnly(ref).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

func env(from *v1.EnvVarSource) {
	if from == nil {
		return
	}
	fieldRef(from.FieldRef)
	if from.FileKeyRef != nil {
		orPointer(&from.FileKeyRef.Optional, false)
	}
}

func fieldRef(ref *v1.ObjectFieldSelector) {
	if ref != nil {
		orDefault(&ref.APIVersion, "v1")
	}
}

func probe(p *v1.Probe) {
	if p == nil {
		return
	}
	orDefault(&p.TimeoutSeconds, 1)
	orDefault(&p.PeriodSeconds, 10)
	orDefault(&p.SuccessThreshold, 1)
	orDefault(&p.FailureThreshold, 3)
	httpGet(p.HTTPGet)
	if p.GRPC != nil {
		orPointer(&p.GRPC.Service, "")
	}
}

func hook(h *v1.LifecycleHandler) {
	if h != nil {
		httpGet(h.HTTPGet)
	}
}

func httpGet(a *v1.HTTPGetAction) {
	if a != nil {
		orDefault(&a.Path, "/")
		orDefault(&a.Scheme, v1.URISchemeHTTP)
	}
}
