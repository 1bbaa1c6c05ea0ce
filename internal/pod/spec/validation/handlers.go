package validation

import (
	"net/netip"
	"strings"
	"unicode"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// handlers counts the actions of a probe or a hook. A probe or hook has to have exactly one action.
type handlers struct {
	at *field.Path
	// kinds lists the possible actions, for messages.
	kinds string
	count int
	errs  field.ErrorList
}

func (h *handlers) add(name string, errs field.ErrorList) {
	h.count++
	if h.count > 1 {
		h.errs = append(h.errs, field.Forbidden(h.at.Child(name),
			"may not be set beside another action: choose one of "+h.kinds))
		return
	}
	h.errs = append(h.errs, errs...)
}

func (h *handlers) result() field.ErrorList {
	if h.count == 0 && len(h.errs) == 0 {
		return field.ErrorList{field.Required(h.at, "must have an action: one of "+h.kinds)}
	}
	return h.errs
}

// execAction checks that the command of an exec action has a program. It is run directly, without a shell.
func execAction(a *v1.ExecAction, at *field.Path) field.ErrorList {
	if len(a.Command) == 0 || a.Command[0] == "" {
		return field.ErrorList{field.Required(at.Child("command"),
			"must begin with the program to run, such as [\"/bin/check\", \"--fast\"]")}
	}
	return nil
}

// httpGet checks an HTTP request to a port of a container. ports are the container's ports.
func httpGet(a *v1.HTTPGetAction, ports []v1.ContainerPort, at *field.Path) field.ErrorList {
	errs := Required(at.Child("path"), a.Path, "must be the path to get, such as \"/healthz\"")
	errs = append(errs, portOf(a.Port, ports, at.Child("port"))...)
	errs = append(errs, host(a.Host, at.Child("host"))...)
	errs = append(errs, OneOf(at.Child("scheme"), a.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)...)
	for i, h := range a.HTTPHeaders {
		item := at.Child("httpHeaders").Index(i)
		errs = append(errs, Invalid(item.Child("name"), h.Name, validation.IsHTTPHeaderName(h.Name))...)
		if strings.ContainsFunc(h.Value, func(r rune) bool { return r != '\t' && unicode.IsControl(r) }) {
			errs = append(errs, field.Invalid(item.Child("value"), h.Value,
				"must be one line without control characters"))
		}
	}
	return errs
}

func tcpSocket(a *v1.TCPSocketAction, ports []v1.ContainerPort, at *field.Path) field.ErrorList {
	errs := portOf(a.Port, ports, at.Child("port"))
	return append(errs, host(a.Host, at.Child("host"))...)
}

// portOf checks that v is a port number, or the name of one of the container's ports. An API server accepts any
// name. But a name that doesn't exist would fail at every attempt, so it is an error here.
func portOf(v intstr.IntOrString, ports []v1.ContainerPort, at *field.Path) field.ErrorList {
	if errs := PortOrName(at, v); len(errs) > 0 || v.Type != intstr.String {
		return errs
	}
	var names Names
	for i := range ports {
		names.Add(ports[i].Name)
	}
	return names.Refer(at, v.StrVal, "must be a port's number or the name of one of this container's ports")
}

// host checks that v is empty, which means the pod's address, or a host without a scheme, port or path: otherwise
// the connection would fail.
func host(v string, at *field.Path) field.ErrorList {
	if v == "" {
		return nil
	}
	if _, err := netip.ParseAddr(v); err == nil {
		return nil
	}
	if strings.ContainsAny(v, " :/\\?#@[]%") || strings.ContainsFunc(v, unicode.IsControl) {
		return field.ErrorList{field.Invalid(at, v,
			"must be a host name or an IP address, without scheme, port, path or brackets")}
	}
	return nil
}
