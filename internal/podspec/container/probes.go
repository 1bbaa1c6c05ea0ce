package container

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/podspec/rule"
)

func (p Pod) probes(c *v1.Container, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	errs = append(errs, killingProbe(c.LivenessProbe, at.Child("livenessProbe"))...)
	errs = append(errs, killingProbe(c.StartupProbe, at.Child("startupProbe"))...)
	if r := c.ReadinessProbe; r != nil {
		path := at.Child("readinessProbe")
		errs = append(errs, probe(r, path)...)
		if r.TerminationGracePeriodSeconds != nil {
			errs = append(errs, field.Invalid(path.Child("terminationGracePeriodSeconds"), *r.TerminationGracePeriodSeconds, "must not be set for readinessProbes"))
		}
	}
	return errs
}

// killingProbe checks a probe whose failure ends the container: one success
// proves it alive.
func killingProbe(p *v1.Probe, at *field.Path) field.ErrorList {
	if p == nil {
		return nil
	}
	errs := probe(p, at)
	if p.SuccessThreshold != 1 {
		errs = append(errs, field.Invalid(at.Child("successThreshold"), p.SuccessThreshold, "must be 1"))
	}
	return errs
}

func probe(p *v1.Probe, at *field.Path) field.ErrorList {
	h := handlers{at: at}
	if p.Exec != nil {
		h.take("exec", execAction(p.Exec, at.Child("exec")))
	}
	if p.HTTPGet != nil {
		h.take("httpGet", httpGet(p.HTTPGet, at.Child("httpGet")))
	}
	if p.TCPSocket != nil {
		h.take("tcpSocket", rule.PortOrName(at.Child("tcpSocket", "port"), p.TCPSocket.Port))
	}
	if p.GRPC != nil {
		h.take("grpc", rule.Port(at.Child("grpc", "port"), p.GRPC.Port))
	}
	errs := h.result()
	errs = append(errs, rule.NotNegative(at.Child("initialDelaySeconds"), p.InitialDelaySeconds)...)
	errs = append(errs, rule.NotNegative(at.Child("timeoutSeconds"), p.TimeoutSeconds)...)
	errs = append(errs, rule.NotNegative(at.Child("periodSeconds"), p.PeriodSeconds)...)
	errs = append(errs, rule.NotNegative(at.Child("successThreshold"), p.SuccessThreshold)...)
	errs = append(errs, rule.NotNegative(at.Child("failureThreshold"), p.FailureThreshold)...)
	if t := p.TerminationGracePeriodSeconds; t != nil && *t <= 0 {
		errs = append(errs, field.Invalid(at.Child("terminationGracePeriodSeconds"), *t, "must be greater than 0"))
	}
	return errs
}

// handlers counts the actions of a probe or hook, of which there is exactly one.
type handlers struct {
	at    *field.Path
	count int
	errs  field.ErrorList
}

func (h *handlers) take(name string, errs field.ErrorList) {
	h.count++
	if h.count > 1 {
		h.errs = append(h.errs, field.Forbidden(h.at.Child(name), "may not specify more than 1 handler type"))
		return
	}
	h.errs = append(h.errs, errs...)
}

func (h *handlers) result() field.ErrorList {
	if h.count == 0 {
		return field.ErrorList{field.Required(h.at, "must specify a handler type")}
	}
	return h.errs
}

func execAction(a *v1.ExecAction, at *field.Path) field.ErrorList {
	if len(a.Command) == 0 {
		return field.ErrorList{field.Required(at.Child("command"), "")}
	}
	return nil
}

func httpGet(a *v1.HTTPGetAction, at *field.Path) field.ErrorList {
	errs := rule.Required(at.Child("path"), a.Path, "")
	errs = append(errs, rule.PortOrName(at.Child("port"), a.Port)...)
	errs = append(errs, rule.OneOf(at.Child("scheme"), a.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)...)
	for i, h := range a.HTTPHeaders {
		errs = append(errs, rule.Invalid(at.Child("httpHeaders").Index(i).Child("name"), h.Name, validation.IsHTTPHeaderName(h.Name))...)
	}
	return errs
}
