package validation

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func probes(c *v1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, killingProbe(c.LivenessProbe, c.Ports, at.Child("livenessProbe"))...)
	errs = append(errs, killingProbe(c.StartupProbe, c.Ports, at.Child("startupProbe"))...)
	return append(errs, readinessProbe(c.ReadinessProbe, c.Ports, at.Child("readinessProbe"))...)
}

// killingProbe checks a startup or liveness probe: if such a probe fails, the container is killed. Its successThreshold
// has to be 1, and it can have its own grace period (KEP-2238).
func killingProbe(p *v1.Probe, ports []v1.ContainerPort, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := probe(p, ports, at)
	if p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(at.Child("successThreshold"), p.SuccessThreshold,
			"must be 1 for liveness and startup probes"))
	}
	if t := p.TerminationGracePeriodSeconds; t != nil {
		errs = append(errs, AtLeast(at.Child("terminationGracePeriodSeconds"), *t, 1)...)
	}
	return errs
}

func readinessProbe(p *v1.Probe, ports []v1.ContainerPort, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := probe(p, ports, at)
	errs = append(errs, AtLeast(at.Child("successThreshold"), p.SuccessThreshold, 1)...)
	if t := p.TerminationGracePeriodSeconds; t != nil {
		errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *t,
			"may not be set for a readiness probe, which ends no container: leave it out"))
	}
	return errs
}

// probe checks the fields of all types of probes. The minimum values are those in the comments of v1.Probe.
// SetDefaults has already replaced each 0 that means "default".
func probe(p *v1.Probe, ports []v1.ContainerPort, at *field.Path) field.ErrorList {
	h := handlers{at: at, kinds: "exec, httpGet, tcpSocket, grpc"}
	if p.Exec != nil {
		h.add("exec", execAction(p.Exec, at.Child("exec")))
	}
	if p.HTTPGet != nil {
		h.add("httpGet", httpGet(p.HTTPGet, ports, at.Child("httpGet")))
	}
	if p.TCPSocket != nil {
		h.add("tcpSocket", tcpSocket(p.TCPSocket, ports, at.Child("tcpSocket")))
	}
	if p.GRPC != nil {
		h.add("grpc", Port(at.Child("grpc", "port"), p.GRPC.Port))
	}
	errs := h.result()
	errs = append(errs, AtLeast(at.Child("initialDelaySeconds"), p.InitialDelaySeconds, 0)...)
	errs = append(errs, AtLeast(at.Child("timeoutSeconds"), p.TimeoutSeconds, 1)...)
	errs = append(errs, AtLeast(at.Child("periodSeconds"), p.PeriodSeconds, 1)...)
	return append(errs, AtLeast(at.Child("failureThreshold"), p.FailureThreshold, 1)...)
}
