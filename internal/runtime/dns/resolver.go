package dns

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// What a pod's resolver configuration can hold; internal/pod/spec refuses a dnsConfig that alone has more
// (https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-dns-config and
// https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#dns-search-domain-list-limits).
const (
	maxServers  = 3
	maxSearches = 32
	// maxSearchBytes counts the domains and the spaces between them.
	maxSearchBytes = 2048
)

// resolver is the configuration of a resolver. Its slices may be shared with the settings.
type resolver struct {
	servers, searches []string
	// options are "name" or "name:value".
	options []string
}

// merge adds to a policy's configuration what the pod asks for: servers and domains
// that aren't there yet at the end, options in the place of those of the same name.
func merge(base resolver, c *v1.PodDNSConfig) resolver {
	if c == nil {
		c = &v1.PodDNSConfig{}
	}
	options := slices.Clone(base.options)
	for _, o := range c.Options {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		options = setOption(options, text)
	}
	return resolver{
		servers:  unique(base.servers, c.Nameservers),
		searches: unique(base.searches, c.Searches),
		options:  options,
	}
}

// setOption puts an option in the place of that of the same name, or at the end.
func setOption(options []string, text string) []string {
	name, _, _ := strings.Cut(text, ":")
	for i, o := range options {
		if has, _, _ := strings.Cut(o, ":"); has == name {
			options[i] = text
			return options
		}
	}
	return append(options, text)
}

// unique is what is in the lists, in their order, each once.
func unique(lists ...[]string) []string {
	var out []string
	for _, list := range lists {
		for _, s := range list {
			if !slices.Contains(out, s) {
				out = append(out, s)
			}
		}
	}
	return out
}

// limit leaves out what is beyond the limits, and says so in the kubelet's words.
func limit(r resolver) (resolver, []pod.Event) {
	var events []pod.Event
	tell := func(message string) {
		events = append(events, pod.Event{Type: v1.EventTypeWarning, Reason: pod.ReasonDNSConfigForming,
			Message: message})
	}
	if len(r.servers) > maxServers {
		r.servers = r.servers[:maxServers]
		tell("Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " +
			strings.Join(r.servers, " "))
	}
	if n := fitting(r.searches); n < len(r.searches) {
		r.searches = r.searches[:n]
		tell("Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " +
			strings.Join(r.searches, " "))
	}
	return r, events
}

// fitting is how many of the domains, from the first on, a search list can hold.
func fitting(searches []string) int {
	length := -1 // no space before the first
	for i, s := range searches {
		length += 1 + len(s)
		if i == maxSearches || length > maxSearchBytes {
			return i
		}
	}
	return len(searches)
}
