package dns

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// The limits of a pod's resolver configuration; internal/pod/spec rejects a dnsConfig that alone exceeds them
// (https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#pod-dns-config and
// https://kubernetes.io/docs/concepts/services-networking/dns-pod-service/#dns-search-domain-list-limits).
const (
	maxServers  = 3
	maxSearches = 32
	// maxSearchBytes includes the spaces between the domains.
	maxSearchBytes = 2048
)

// resolver is the configuration of a resolver. Its slices may be shared with Config.
type resolver struct {
	servers, searches []string
	// options are "name" or "name:value".
	options []string
}

// merge adds the pod's dnsConfig to the configuration of its dnsPolicy. Servers and domains are appended; an option
// replaces the option of the same name.
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

// setOption replaces the option of the same name, or appends the option.
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

// unique concatenates the lists without duplicates.
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

// limit truncates the configuration to the limits, and returns events with the kubelet's messages.
func limit(r resolver) (resolver, []pod.Event) {
	var events []pod.Event
	record := func(message string) {
		events = append(events, pod.Event{Type: v1.EventTypeWarning, Reason: pod.ReasonDNSConfigForming,
			Message: message})
	}
	if len(r.servers) > maxServers {
		r.servers = r.servers[:maxServers]
		record("Nameserver limits were exceeded, some nameservers have been omitted, the applied nameserver line is: " +
			strings.Join(r.servers, " "))
	}
	if n := fitting(r.searches); n < len(r.searches) {
		r.searches = r.searches[:n]
		record("Search Line limits were exceeded, some search paths have been omitted, the applied search line is: " +
			strings.Join(r.searches, " "))
	}
	return r, events
}

// fitting returns how many of the first domains fit into the limits of a search list.
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
