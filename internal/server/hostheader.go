package server

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// sameHost serves requests for this machine only. Whoever can have a browser here load a page can have its scripts ask
// ports of this machine as another host, whose name resolves to it since then (DNS rebinding). The browser then names
// that host; programs name an address, or this node. names are the node's, in any case.
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
		// no name, so none that was pointed here: balancers and machines behind NAT are asked for by addresses of their
		// own
		return true
	}
	switch {
	case host == "", host == "localhost", strings.HasSuffix(host, ".localhost"): // RFC 6761: no name service is asked
		return true
	case host == "localhost.localdomain", host == "ip6-localhost", host == "ip6-loopback": // what /etc/hosts has
		return true
	}
	return slices.ContainsFunc(names(), func(name string) bool { return strings.EqualFold(name, host) })
}

// hostOf is a Host header's host, in lower case and without the dot that ends a full name.
func hostOf(header string) string {
	host := header
	if h, _, err := net.SplitHostPort(header); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"), "."))
}
