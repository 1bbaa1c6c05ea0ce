package spec

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	specvalidation "github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

// Limits of a pod's DNS configuration
// (https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-dns-config).
const (
	maxNameservers     = 3
	maxSearches        = 32
	maxSearchListChars = 2048
)

func dns(s *v1.PodSpec, at *field.Path) field.ErrorList {
	errs := specvalidation.OneOf(at.Child("dnsPolicy"), s.DNSPolicy, v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet,
		v1.DNSDefault, v1.DNSNone)
	config, path := s.DNSConfig, at.Child("dnsConfig")
	if s.DNSPolicy == v1.DNSNone {
		if config == nil {
			return append(errs, field.Required(path,
				fmt.Sprintf("must provide `dnsConfig` when `dnsPolicy` is %s", v1.DNSNone)))
		}
		if len(config.Nameservers) == 0 {
			errs = append(errs, field.Required(path.Child("nameservers"),
				fmt.Sprintf("must provide at least one DNS nameserver when `dnsPolicy` is %s", v1.DNSNone)))
		}
	}
	if config != nil {
		errs = append(errs, dnsConfig(config, path)...)
	}
	return errs
}

func dnsConfig(c *v1.PodDNSConfig, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	servers, searches := at.Child("nameservers"), at.Child("searches")
	if n := len(c.Nameservers); n > maxNameservers {
		errs = append(errs, field.TooMany(servers, n, maxNameservers))
	}
	for i, s := range c.Nameservers {
		errs = append(errs, validation.IsValidIPForLegacyField(servers.Index(i), s, false, nil)...)
	}
	if n := len(c.Searches); n > maxSearches {
		errs = append(errs, field.TooMany(searches, n, maxSearches))
	}
	if list := strings.Join(c.Searches, " "); len(list) > maxSearchListChars {
		errs = append(errs, field.TooLong(searches, list, maxSearchListChars))
	}
	for i, s := range c.Searches {
		errs = append(errs, search(s, searches.Index(i))...)
	}
	for i, o := range c.Options {
		errs = append(errs, specvalidation.Required(at.Child("options").Index(i).Child("name"), o.Name,
			"must name a resolver option, such as \"ndots\"")...)
	}
	return errs
}

// search checks a search domain. It may contain underscores and end in a dot. A single dot, the root domain, is
// valid, too (KEP-4427).
func search(domain string, at *field.Path) field.ErrorList {
	if domain == "." {
		return nil
	}
	return specvalidation.Invalid(at, domain,
		validation.IsDNS1123SubdomainWithUnderscore(strings.TrimSuffix(domain, ".")))
}
