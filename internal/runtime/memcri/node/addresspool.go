package node

import (
	"fmt"
	"net/netip"
)

// addressPool allocates addresses in turn, skipping those in use. It is not safe for concurrent use.
type addressPool struct {
	prefix netip.Prefix
	last   netip.Addr
	used   map[netip.Addr]struct{}
}

// newAddressPool returns an addressPool of the network cidr ("10.88.0.0/16").
func newAddressPool(cidr string) (*addressPool, error) {
	prefix, err := netip.ParsePrefix(cidr)
	if err != nil {
		return nil, fmt.Errorf("pod CIDR: %w", err)
	}
	prefix = prefix.Masked()
	// The network's own address and the gateway's are never allocated.
	return &addressPool{prefix: prefix, last: prefix.Addr().Next(), used: make(map[netip.Addr]struct{})}, nil
}

// Allocate allocates a free address. If there is none, its error is that of the CNI plugin host-local.
func (p *addressPool) Allocate() (string, error) {
	gateway := p.prefix.Addr().Next()
	for addr := p.next(p.last); ; addr = p.next(addr) {
		if _, taken := p.used[addr]; !taken && addr != gateway {
			p.last = addr
			p.used[addr] = struct{}{}
			return addr.String(), nil
		}
		if addr == p.last {
			return "", fmt.Errorf("no IP addresses available in range set: %s", p.prefix)
		}
	}
}

// next returns the address after addr; after the last one it starts again with the gateway's.
func (p *addressPool) next(addr netip.Addr) netip.Addr {
	if addr = addr.Next(); p.prefix.Contains(addr) {
		return addr
	}
	return p.prefix.Addr().Next()
}

// Release frees an address. It ignores an address that isn't allocated.
func (p *addressPool) Release(ip string) {
	if addr, err := netip.ParseAddr(ip); err == nil {
		delete(p.used, addr)
	}
}
