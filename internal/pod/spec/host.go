package spec

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod"
	specvalidation "github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

// host checks the pod's host name and the entries of its hosts file (hostAliases).
func host(s *v1.PodSpec, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Hostname != "" {
		errs = append(errs, specvalidation.Label(at.Child("hostname"), s.Hostname)...)
	}
	if s.Subdomain != "" {
		errs = append(errs, specvalidation.Label(at.Child("subdomain"), s.Subdomain)...)
	}
	errs = append(errs, hostnameOverride(s, at)...)
	for i, alias := range s.HostAliases {
		item := at.Child("hostAliases").Index(i)
		errs = append(errs, validation.IsValidIPForLegacyField(item.Child("ip"), alias.IP, false, nil)...)
		for j, name := range alias.Hostnames {
			errs = append(errs, specvalidation.Subdomain(item.Child("hostnames").Index(j), name)...)
		}
	}
	return errs
}

func hostnameOverride(s *v1.PodSpec, at *field.Path) field.ErrorList {
	if s.HostnameOverride == nil {
		return nil
	}
	name, path := *s.HostnameOverride, at.Child("hostnameOverride")
	errs := specvalidation.Subdomain(path, name)
	if len(name) > pod.MaxHostname {
		errs = append(errs, field.TooLong(path, name, pod.MaxHostname))
	}
	if s.HostNetwork {
		errs = append(errs, field.Forbidden(path, "may not be specified when hostNetwork is true"))
	}
	if s.SetHostnameAsFQDN != nil && *s.SetHostnameAsFQDN {
		errs = append(errs, field.Forbidden(at.Child("setHostnameAsFQDN"),
			"may not be true when hostnameOverride is specified"))
	}
	return errs
}
