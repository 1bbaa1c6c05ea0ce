package cni

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// alias returns the bridge's ifalias, which identifies its owner.
func (n Network) alias() string { return "deckhand:" + n.Owner }

// CheckBridge returns an error if the bridge's name belongs to another interface or another agent's bridge.
func (n Network) CheckBridge() error {
	_, err := n.bridge()
	return err
}

// bridge returns the bridge if it exists and is ours, nil if it doesn't exist.
func (n Network) bridge() (netlink.Link, error) {
	link, err := netlink.LinkByName(n.Bridge)
	if isNoLink(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("bridge %s: %w", n.Bridge, err)
	}
	return link, n.checkOwner(link)
}

// EnsureBridge creates the bridge or its missing parts, and reports whether anything was missing. The bridge plugin
// would also create the bridge. EnsureBridge creates it so that it has its owner's alias from the start, and exists
// before the first packet of a pod. mac is the hardware address for a new bridge. While pods are running it has to be
// the address of the previous bridge, because pods cache that for minutes. With nil, the address is derived from the
// network's owner.
func (n Network) EnsureBridge(mac net.HardwareAddr) (changed bool, err error) {
	link, err := n.bridge()
	if err != nil {
		return false, err
	}
	if link == nil {
		changed = true
		if link, err = n.makeBridge(mac); err != nil {
			return changed, err
		}
	}
	if link.Attrs().Alias != n.alias() {
		if err := netlink.LinkSetAlias(link, n.alias()); err != nil {
			return changed, fmt.Errorf("name the owner of the bridge %s: %w", n.Bridge, err)
		}
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		changed = true
		if err := netlink.LinkSetUp(link); err != nil {
			return changed, fmt.Errorf("set the bridge %s up: %w", n.Bridge, err)
		}
	}
	for _, p := range n.Prefixes {
		made, err := n.ensureAddress(link, p)
		changed = changed || made
		if err != nil {
			return changed, fmt.Errorf("bridge %s: %w", n.Bridge, err)
		}
	}
	return changed, nil
}

func (n Network) makeBridge(mac net.HardwareAddr) (netlink.Link, error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr = n.Bridge, mac
	if mac == nil {
		sum := sha256.Sum256([]byte(n.alias()))
		attrs.HardwareAddr = append(net.HardwareAddr{0x02}, sum[:5]...) // locally administered
	}
	br := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(br); err != nil {
		return nil, fmt.Errorf("make the bridge %s: %w", n.Bridge, err)
	}
	// Source routes are disabled because the kernel processes them after the guard in netfilter (see EnsureRules).
	if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv4/conf", n.Bridge, "accept_source_route"), []byte("0"),
		0o644); err != nil {
		return nil, fmt.Errorf("bridge %s: %w", n.Bridge, err)
	}
	// As the bridge plugin does; the file doesn't exist without IPv6.
	_ = os.WriteFile(filepath.Join("/proc/sys/net/ipv6/conf", n.Bridge, "accept_ra"), []byte("0"), 0o644)
	return br, nil
}

// gateway returns the host's address in a prefix, with the prefix' length: the first address, as in the plugin
// host-local.
func gateway(p netip.Prefix) netip.Prefix { return netip.PrefixFrom(p.Addr().Next(), p.Bits()) }

// ensureAddress adds the gateway's address of a prefix to the bridge, and the route to its pods.
func (n Network) ensureAddress(link netlink.Link, p netip.Prefix) (changed bool, err error) {
	own := gateway(p)
	family := netlink.FAMILY_V4
	if !p.Addr().Is4() {
		family = netlink.FAMILY_V6
	}
	addrs, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, family) })
	if err != nil {
		return false, fmt.Errorf("list its addresses: %w", err)
	}
	asNet := func(p netip.Prefix) *net.IPNet {
		return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
	}
	if !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IPNet.String() == own.String() }) {
		changed = true
		// No other host has the address, and pods need it at once, so skip duplicate address detection.
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: asNet(own), Flags: unix.IFA_F_NODAD}); err != nil &&
			!errors.Is(err, unix.EEXIST) {
			return changed, fmt.Errorf("give it the address %s: %w", own, err)
		}
	}
	routes, err := whole(func() ([]netlink.Route, error) { return netlink.RouteList(link, family) })
	if err != nil {
		return changed, fmt.Errorf("list its routes: %w", err)
	}
	if slices.ContainsFunc(routes, func(r netlink.Route) bool { dst, ok := prefixOf(r.Dst); return ok && dst == p }) {
		return changed, nil
	}
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: asNet(p), Protocol: unix.RTPROT_KERNEL}
	if p.Addr().Is4() {
		route.Src, route.Scope = own.Addr().AsSlice(), netlink.SCOPE_LINK
	}
	if err := netlink.RouteReplace(route); err != nil {
		return changed, fmt.Errorf("make the route to %s: %w", p, err)
	}
	return true, nil
}

// ensurePort connects a pod's interface to the bridge as the bridge plugin does, and reports whether it changed
// anything.
func ensurePort(bridge, port netlink.Link) (changed bool, err error) {
	a := port.Attrs()
	if a.MasterIndex != bridge.Attrs().Index {
		changed = true
		if err := errors.Join(netlink.LinkSetMaster(port, bridge), netlink.LinkSetHairpin(port, true)); err != nil {
			return changed, fmt.Errorf("plug %s into the bridge %s: %w", a.Name, bridge.Attrs().Name, err)
		}
	}
	if a.Flags&net.FlagUp == 0 {
		changed = true
		if err := netlink.LinkSetUp(port); err != nil {
			return changed, fmt.Errorf("set %s up: %w", a.Name, err)
		}
	}
	return changed, nil
}

func (n Network) checkOwner(link netlink.Link) error {
	if link.Type() != "bridge" {
		return fmt.Errorf("interface %s is a %s, not a bridge: choose another name for the pods' bridge", n.Bridge,
			link.Type())
	}
	if n.Owns(link) {
		return nil
	}
	return fmt.Errorf("bridge %s exists and isn't of this agent (alias %q): choose another name for the pods' bridge",
		n.Bridge, link.Attrs().Alias)
}

// Owns reports whether the bridge was created for this agent: its alias names the owner. A bridge that a plugin
// recreated after its removal has no alias, and is recognized by its address.
func (n Network) Owns(link netlink.Link) bool {
	if link.Attrs().Alias != "" {
		return link.Attrs().Alias == n.alias()
	}
	addrs, err := whole(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return false
	}
	for _, a := range addrs {
		for _, p := range n.Prefixes {
			if ones, _ := a.Mask.Size(); ones == p.Bits() && a.IP.Equal(net.IP(p.Addr().Next().AsSlice())) {
				return true
			}
		}
	}
	return false
}

// RemoveBridge removes the bridge if it is ours, and the host's ends of the pods' interfaces that are connected to
// it.
func (n Network) RemoveBridge() error {
	link, err := netlink.LinkByName(n.Bridge)
	if isNoLink(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("bridge %s: %w", n.Bridge, err)
	}
	if link.Type() != "bridge" || !n.Owns(link) {
		return nil
	}
	if err := removePorts(link.Attrs().Index); err != nil {
		return fmt.Errorf("bridge %s: %w", n.Bridge, err)
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("remove the bridge %s: %w", n.Bridge, err)
	}
	return nil
}

func removePorts(bridge int) error {
	links, err := whole(netlink.LinkList)
	if err != nil {
		return fmt.Errorf("list its ports: %w", err)
	}
	var errs []error
	for _, l := range links {
		if l.Attrs().MasterIndex != bridge || l.Type() != "veth" {
			continue
		}
		if err := netlink.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
			errs = append(errs, fmt.Errorf("remove %s: %w", l.Attrs().Name, err))
		}
	}
	return errors.Join(errs...)
}

// whole calls the function list again if the kernel's objects changed during the call.
func whole[T any](list func() ([]T, error)) ([]T, error) {
	const tries = 20
	for try := 1; ; try++ {
		all, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) || try == tries {
			return all, err
		}
	}
}

func isNoLink(err error) bool {
	var none netlink.LinkNotFoundError
	return errors.As(err, &none)
}

// CheckOverlap returns an error if the pod network overlaps a route of the host.
func (n Network) CheckOverlap() error {
	own := -1
	if link, err := netlink.LinkByName(n.Bridge); err == nil && n.Owns(link) {
		own = link.Attrs().Index
	}
	routes, err := whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return fmt.Errorf("list the host's routes: %w", err)
	}
	for _, r := range routes {
		dst, ok := prefixOf(r.Dst)
		if !ok || r.LinkIndex == own {
			continue
		}
		for _, p := range n.Prefixes {
			if p.Overlaps(dst) {
				return fmt.Errorf("podCIDR %s overlaps the host's route %s dev %s: set podCIDR to a range that isn't "+
					"in use", p, dst, linkName(r.LinkIndex))
			}
		}
	}
	return nil
}

// prefixOf converts the destination of a route. It returns false for default routes, which overlap every prefix and
// are ignored here.
func prefixOf(dst *net.IPNet) (netip.Prefix, bool) {
	if dst == nil {
		return netip.Prefix{}, false
	}
	addr, ok := netip.AddrFromSlice(dst.IP)
	ones, _ := dst.Mask.Size()
	if !ok || ones == 0 {
		return netip.Prefix{}, false
	}
	return netip.PrefixFrom(addr.Unmap(), ones), true
}

func linkName(index int) string {
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return fmt.Sprintf("#%d", index)
	}
	return link.Attrs().Name
}

// EnableForwarding enables IP forwarding between pods and other hosts. It returns the settings that it had to
// change.
func (n Network) EnableForwarding() ([]string, error) {
	return n.enable("net/ipv4/ip_forward", "net/ipv6/conf/all/forwarding")
}

// EnableBridgeForwarding enables IP forwarding in the settings of the bridge, and returns those that it changed.
func (n Network) EnableBridgeForwarding() ([]string, error) {
	return n.enable("net/ipv4/conf/"+n.Bridge+"/forwarding", "net/ipv6/conf/"+n.Bridge+"/forwarding")
}

// routeLoopback allows routing between the host's loopback addresses and pods, which host ports at 127.0.0.1 need.
func (n Network) routeLoopback() error {
	if err := os.WriteFile(filepath.Join("/proc/sys/net/ipv4/conf", n.Bridge, "route_localnet"), []byte("1"),
		0o644); err != nil {
		return fmt.Errorf("bridge %s: %w", n.Bridge, err)
	}
	return nil
}

// enable turns on the setting v4 if the network has IPv4, and v6 if it has IPv6. It returns the settings that were
// off.
func (n Network) enable(v4, v6 string) ([]string, error) {
	var changed []string
	for _, p := range n.Prefixes {
		name := v4
		if !p.Addr().Is4() {
			name = v6
		}
		path := filepath.Join("/proc/sys", name)
		now, err := os.ReadFile(path)
		if err != nil {
			return changed, fmt.Errorf("IP forwarding: %w", err)
		}
		if strings.TrimSpace(string(now)) == "1" {
			continue
		}
		if err := os.WriteFile(path, []byte("1\n"), 0o644); err != nil {
			return changed, fmt.Errorf("enable IP forwarding: %w", err)
		}
		changed = append(changed, strings.ReplaceAll(name, "/", "."))
	}
	return changed, nil
}
