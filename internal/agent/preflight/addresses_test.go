package preflight

import (
	"errors"
	"net"
	"net/netip"
	"testing"
)

func TestNodeIPs(t *testing.T) {
	of := func(list ...string) func() ([]net.Addr, error) {
		return func() ([]net.Addr, error) {
			var out []net.Addr
			for _, s := range list {
				ip, network, err := net.ParseCIDR(s)
				if err != nil {
					return nil, err
				}
				out = append(out, &net.IPNet{IP: ip, Mask: network.Mask})
			}
			return out, nil
		}
	}
	ips := func(list ...string) (out []netip.Addr) {
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	host := of("127.0.0.1/8", "192.0.2.7/24", "2001:db8::7/64")
	expect(t, checkNodeIPs(ips("192.0.2.7", "2001:db8::7"), host), false)
	expect(t, checkNodeIPs(nil, of()), false)
	expect(t, checkNodeIPs(ips("192.0.2.7", "2001:db8::8"), host), false, "2001:db8::8", "--node-ip")
	expect(t, checkNodeIPs(ips("192.0.2.7"), func() ([]net.Addr, error) { return nil, errors.New("no netlink") }), false, "no netlink")
	expect(t, checkNodeIPs(ips("127.0.0.1"), net.InterfaceAddrs), false) // the real ones
}
