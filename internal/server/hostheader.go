package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// sameHost serves only requests whose Host header names this machine, as a defence against DNS rebinding: a page's
// scripts in a browser may send requests to a host name that now resolves to this machine. The browser sends that
// foreign name as Host; programs send an address, or a name of this node. The function names returns the node's
// names; their letter case doesn't matter.
func sameHost(names func() []string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isOwn(r, names) {
			http.Error(w, fmt.Sprintf("%.100q isn't a name or an address of this node: ask for localhost, or one of %q",
				r.Host, names()), http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

func isOwn(r *http.Request, names func() []string) bool {
	host := hostOf(r.Host)
	if _, err := netip.ParseAddr(host); err == nil {
		// DNS rebinding needs a name. Load balancers, and NAT in front of this machine, have addresses of their own.
		return true
	}
	switch {
	case host == "", host == "localhost", strings.HasSuffix(host, ".localhost"): // RFC 6761: never resolved by DNS
		return true
	case host == "localhost.localdomain", host == "ip6-localhost", host == "ip6-loopback": // usual in /etc/hosts
		return true
	}
	return slices.ContainsFunc(names(), func(name string) bool { return strings.EqualFold(name, host) })
}

// hostOf returns a Host header's host, in lower case and without the dot that ends a fully qualified name.
func hostOf(header string) string {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), "."))
}
