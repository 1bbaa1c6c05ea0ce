package cni

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// alias is the bridge's ifalias: it says whose it is.
func (n Network) alias() string { return "deckhand:" + n.Owner }

// CheckBridge says whether the bridge's name is taken by something of another's.
func (n Network) CheckBridge() error {
	_, err := n.bridge()
	return err
}

// bridge is the bridge if it is there and ours, nil if there is none.
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

// EnsureBridge makes the bridge, unless it is there and ours. The bridge plugin
// would make it too; made here it carries its owner's name from the start.
func (n Network) EnsureBridge() error {
	if link, err := n.bridge(); link != nil || err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = n.Bridge
	br := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(br); err != nil {
		return fmt.Errorf("make the bridge %s: %w", n.Bridge, err)
	}
	if err := netlink.LinkSetAlias(br, n.alias()); err != nil {
		return fmt.Errorf("name the owner of the bridge %s: %w", n.Bridge, err)
	}
	return nil
}

func (n Network) checkOwner(link netlink.Link) error {
	if link.Type() != "bridge" {
		return fmt.Errorf("interface %s is a %s, not a bridge: choose another name for the pods' bridge", n.Bridge, link.Type())
	}
	if n.Owns(link) {
		return nil
	}
	return fmt.Errorf("bridge %s exists and isn't of this agent (alias %q): choose another name for the pods' bridge", n.Bridge, link.Attrs().Alias)
}

// Owns reports whether the bridge was made for this agent: by its alias, or,
// where a plugin made it again after someone removed it, by its address.
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

// RemoveBridge removes the bridge if it is ours, and with it the pods' ends that
// are still plugged in.
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

// whole asks the kernel for a list again while it changed under way.
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

// CheckOverlap says which route of the host the pod network would hide.
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
				return fmt.Errorf("podCIDR %s overlaps the host's route %s dev %s: set podCIDR to a range that isn't in use", p, dst, linkName(r.LinkIndex))
			}
		}
	}
	return nil
}

// prefixOf is false for default routes, which overlap everything and mean nothing here.
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

// EnableForwarding lets the host pass packets on between pods and other hosts. It
// returns the settings that it had to change.
func (n Network) EnableForwarding() ([]string, error) {
	var changed []string
	for _, p := range n.Prefixes {
		name := "net/ipv4/ip_forward"
		if !p.Addr().Is4() {
			name = "net/ipv6/conf/all/forwarding"
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
