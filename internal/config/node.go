package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
)

// lookupTimeout is the timeout of resolving the host's own name.
const lookupTimeout = 2 * time.Second

// host has the properties of the machine that a configuration needs.
type host interface {
	Hostname() (string, error)
	// RouteSource returns the source address of packets to the default route.
	RouteSource(ctx context.Context, ipv6 bool) (netip.Addr, error)
	Lookup(ctx context.Context, name string) ([]netip.Addr, error)
}

// nodeLabels returns the standard labels of a node (kubernetes.io/docs/reference/labels-annotations-taints) and the
// labels in given, which override them.
func nodeLabels(name string, given map[string]string) map[string]string {
	labels := map[string]string{v1.LabelHostname: name, v1.LabelOSStable: runtime.GOOS,
		v1.LabelArchStable: runtime.GOARCH}
	maps.Copy(labels, given)
	return labels
}

// systemHost is the machine that the agent runs on.
type systemHost struct{}

func (systemHost) Hostname() (string, error) { return os.Hostname() }

// RouteSource connects a UDP socket to an address that is reserved for documentation (RFC 5737, RFC 3849), which only
// default routes match. The kernel selects a source address for the socket; no packet is sent.
func (systemHost) RouteSource(ctx context.Context, ipv6 bool) (netip.Addr, error) {
	network, to := "udp4", "192.0.2.1:9"
	if ipv6 {
		network, to = "udp6", "[2001:db8::1]:9"
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, to)
	if err != nil {
		return netip.Addr{}, err
	}
	defer conn.Close()
	local, err := netip.ParseAddrPort(conn.LocalAddr().String())
	if err != nil {
		return netip.Addr{}, err
	}
	return local.Addr().WithZone(""), nil
}

func (systemHost) Lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
}

// noHost is a host without properties, for checking a configuration that may be for another machine.
type noHost struct{}

func (noHost) Hostname() (string, error) { return "localhost", nil }
func (noHost) RouteSource(context.Context, bool) (netip.Addr, error) {
	return netip.Addr{}, errors.ErrUnsupported
}
func (noHost) Lookup(context.Context, string) ([]netip.Addr, error) { return nil, nil }

// nodeName returns the override or the host name, in lower case.
func nodeName(override string, h host) (string, error) {
	name := override
	if name == "" {
		var err error
		if name, err = h.Hostname(); err != nil {
			return "", fmt.Errorf("the host's name can't be read (%w); give one", err)
		}
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if len(utilvalidation.IsDNS1123Subdomain(name)) > 0 {
		return "", fmt.Errorf("%q isn't a valid node name: it must be of letters, digits, - and ., begin and end "+
			"with a letter or digit, and have at most %d of them", name, utilvalidation.DNS1123SubdomainMaxLength)
	}
	return name, nil
}

// parseNodeIPs parses --node-ip: empty, one address, or one of each IP family. Only a standalone node may have a
// loopback address, because an API server couldn't reach the node there.
func parseNodeIPs(text string, standalone bool) ([]netip.Addr, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var out []netip.Addr
	for part := range strings.SplitSeq(text, ",") {
		ip, err := netip.ParseAddr(strings.TrimSpace(part))
		if err != nil || ip.Zone() != "" {
			return nil, fmt.Errorf("%q is not an IP address", strings.TrimSpace(part))
		}
		ip = ip.Unmap()
		if ip.IsMulticast() || ip.IsLinkLocalUnicast() {
			return nil, fmt.Errorf("%s can't be a node's address: it is a multicast or link-local one", ip)
		}
		if ip.IsLoopback() && !standalone {
			return nil, fmt.Errorf("%s can't be the address of a cluster's node: it is a loopback one", ip)
		}
		out = append(out, ip)
	}
	if len(out) == 1 {
		return out, nil
	}
	if len(out) > 2 || out[0].Is4() == out[1].Is4() {
		return nil, errors.New("at most one address of each IP family may be given, such as \"192.0.2.10,2001:db8::10\"")
	}
	if out[0].IsUnspecified() || out[1].IsUnspecified() {
		return nil, errors.New("0.0.0.0 and :: can be given only alone")
	}
	return out, nil
}

// defaultNodeIP returns the source address of the default route. If there is none, it returns an address that the
// node's name resolves to, and otherwise a loopback address, so that a machine without a network also runs pods.
func defaultNodeIP(ctx context.Context, h host, name string, preferIPv6 bool) netip.Addr {
	for _, ipv6 := range []bool{preferIPv6, !preferIPv6} {
		if ip, err := h.RouteSource(ctx, ipv6); err == nil && usable(ip) {
			return ip
		}
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	var second netip.Addr
	found, _ := h.Lookup(ctx, name) // an error counts as an empty answer
	for _, ip := range found {
		ip = ip.Unmap()
		switch {
		case !usable(ip):
		case ip.Is6() == preferIPv6:
			return ip
		case !second.IsValid():
			second = ip
		}
	}
	if second.IsValid() {
		return second
	}
	if preferIPv6 {
		return netip.IPv6Loopback()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}

func usable(ip netip.Addr) bool {
	return ip.IsGlobalUnicast() // neither unspecified, loopback, multicast nor link-local
}
