package pod

import (
	"cmp"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Limits of host names in bytes: the length of a DNS label (RFC 1123), and the length of a machine's host name in
// Linux (KEP-4762).
const (
	maxHostLabel = 63
	MaxHostname  = 64
)

// HostNames returns the pod's host name and, if it has one, its fully qualified domain name, by the API comments of
// hostname, subdomain and hostnameOverride. clusterDomain is the field of the KubeletConfiguration. If clusterDomain is
// empty, the fully qualified name ends in a dot, and is still valid.
func HostNames(p *v1.Pod, clusterDomain string) (host, fqdn string) {
	if o := p.Spec.HostnameOverride; o != nil && *o != "" {
		return *o, ""
	}
	host = cmp.Or(p.Spec.Hostname, p.Name)
	if len(host) > maxHostLabel {
		host = strings.TrimRight(host[:maxHostLabel], "-.")
	}
	if p.Spec.Subdomain != "" {
		fqdn = fmt.Sprintf("%s.%s.%s.svc.%s", host, p.Spec.Subdomain, p.Namespace, clusterDomain)
	}
	return host, fqdn
}
