package preflight

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
)

// checkNodeIPs reports node addresses that no interface of this host has: other hosts couldn't reach the node at
// them. The problem isn't fatal, because the interface may come up later.
func checkNodeIPs(wanted []netip.Addr, interfaces func() ([]net.Addr, error)) []Problem {
	if len(wanted) == 0 {
		return nil
	}
	list, err := interfaces()
	if err != nil {
		return []Problem{{Message: fmt.Sprintf(
			"this host's addresses can't be listed (%v), so it isn't known whether --node-ip is one", err)}}
	}
	var have []netip.Addr
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			have = append(have, p.Addr().Unmap())
		}
	}
	var problems []Problem
	for _, ip := range wanted {
		if !slices.Contains(have, ip) {
			problems = append(problems,
				Problem{Message: fmt.Sprintf(
					"no network interface has the node's address %s (--node-ip): nobody can reach the node by it; "+
						"give one that `ip address` shows, or leave the flag out", ip)})
		}
	}
	return problems
}
