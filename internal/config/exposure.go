package config

import (
	"fmt"
	"net/netip"
	"net/url"

	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"
)

// Exposure is a setting that lets clients access the node without authentication or authorization. It isn't an error,
// because a user chose it, but the log, `deckhand why` and `deckhand config check` report it.
type Exposure struct {
	// Path is the path of the setting.
	Path string
	// Message says which clients can do which actions, and which setting would prevent that.
	Message string
}

// String formats the exposure on one line.
func (e Exposure) String() string { return e.Path + ": " + e.Message }

// everyone is the default of the field address in a cluster: all addresses of the node.
const everyone = "0.0.0.0"

// addExposures collects the exposures of the configuration. docs/security.md has the same list.
func (l *loader) addExposures() {
	c, k := l.config, &l.config.Kubelet
	alone := c.Standalone && !l.somewhere
	https, readOnly := c.HTTPS, c.ReadOnly
	if l.somewhere && c.Standalone { // in a cluster, the same file would expose more
		address := k.Address
		if !l.given.Given("address") {
			address = everyone
		}
		if https = (netip.AddrPort{}); *k.EnableServer {
			https = addrPort(address, k.Port)
		}
		if !l.given.Given("readOnlyPort") {
			readOnly = netip.AddrPort{}
		}
	}
	add := func(path, format string, args ...any) {
		c.Exposures = append(c.Exposures, Exposure{path, fmt.Sprintf(format, args...)})
	}
	if https.Port() != 0 {
		l.addHTTPSExposures(https, alone, add)
	}
	if readOnly.Port() != 0 && !readOnly.Addr().IsLoopback() {
		add("readOnlyPort", "any client that reaches %s can read metrics and pods, with the environment variables in "+
			"their manifests, without credentials; set it to 0, or serve it on a loopback address", readOnly)
	}
	if u, err := url.Parse(k.StaticPodURL); err == nil && u.Scheme == "http" && !isLoopback(u.Hostname()) {
		add("staticPodURL", "manifests from %s aren't encrypted: an attacker who changes the response in transit is "+
			"root on this machine; use https", u.Host)
	}
}

func (l *loader) addHTTPSExposures(at netip.AddrPort, alone bool, add func(path, format string, args ...any)) {
	k := &l.config.Kubelet
	anonymous := ptr.Deref(k.Authentication.Anonymous.Enabled, false)
	close := "set it to Webhook"
	if alone {
		close = "set enableServer: false, unless that is meant"
	}
	switch always := k.Authorization.Mode == v1beta1.KubeletAuthorizationModeAlwaysAllow; {
	case always && anonymous:
		add("authorization.mode",
			"AlwaysAllow with authentication.anonymous.enabled: any client that reaches %s can run commands in all "+
				"containers, without credentials; %s", at, close)
	case always:
		add("authorization.mode",
			"AlwaysAllow: any client that is authenticated at %s (by a client certificate of "+
				"authentication.x509.clientCAFile, or a token) can run commands in all containers; %s", at, close)
	case anonymous && !alone:
		add("authentication.anonymous.enabled",
			"requests without credentials at %s may do what the API server allows the user system:anonymous and the "+
				"group system:unauthenticated; set it to false", at)
	}
}

// isLoopback reports whether the host of a URL is this machine, without asking DNS.
func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}
