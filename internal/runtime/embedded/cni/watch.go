package cni

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Attributes of linux/netconf.h that x/sys doesn't have.
const (
	netconfIndex   = 1 // NETCONFA_IFINDEX
	netconfForward = 2 // NETCONFA_FORWARDING
)

// observer is notified when parts of the network may have changed.
type observer interface {
	// watching is called once the subscriptions are established.
	watching()
	// linksChanged is called after changes of interfaces, addresses, routes or forwarding, rulesChanged after
	// changes of netfilter rules.
	linksChanged()
	rulesChanged()
	// changedBy names the program that changed rules.
	changedBy(program string)
}

// watch notifies o of changes until ctx ends. The kernel reports each change, so it doesn't poll.
func (n Network) watch(ctx context.Context, o observer) error {
	routes, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR,
		unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF)
	if err != nil {
		return fmt.Errorf("watch the host's network: %w", err)
	}
	defer routes.Close()
	filter, err := nl.Subscribe(unix.NETLINK_NETFILTER, unix.NFNLGRP_NFTABLES)
	if err != nil {
		return fmt.Errorf("watch the host's netfilter rules: %w", err)
	}
	defer filter.Close()
	o.watching()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { routes.Close(); filter.Close() })()
	var readers sync.WaitGroup
	var ended [2]error
	rules := rulesWatch{table: n.table(), by: o.changedBy}
	readers.Go(func() { defer cancel(); ended[0] = receive(ctx, routes, n.routeMatters, o.linksChanged) })
	readers.Go(func() { defer cancel(); ended[1] = receive(ctx, filter, rules.matters, o.rulesChanged) })
	readers.Wait()
	return errors.Join(ended[:]...)
}

// receive calls changed after relevant messages, and when messages were lost.
func receive(ctx context.Context, s *nl.NetlinkSocket, matters func(syscall.NetlinkMessage) bool,
	changed func()) error {
	for {
		messages, from, err := s.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, unix.ENOBUFS):
			changed()
			continue
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return fmt.Errorf("watch the host's network: %w", err)
		case from.Pid != 0: // not the kernel's
			continue
		}
		for _, m := range messages {
			if matters(m) {
				changed()
			}
		}
	}
}

// routeMatters reports whether a message of rtnetlink may be about the network.
func (n Network) routeMatters(m syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) < unix.SizeofIfInfomsg {
			return false
		}
		info := nl.DeserializeIfInfomsg(m.Data)
		name, plugged := "", false
		for attr, value := range attributes(m.Data[unix.SizeofIfInfomsg:]) {
			switch attr {
			case unix.IFLA_IFNAME:
				name = text(value)
			case unix.IFLA_MASTER:
				plugged = true
			}
		}
		// No check is needed for a pod's interface that is connected and up.
		return name == n.Bridge || strings.HasPrefix(name, "veth") &&
			(!plugged || info.Flags&unix.IFF_UP == 0 || m.Header.Type == unix.RTM_DELLINK)
	case unix.RTM_DELADDR:
		return true
	case unix.RTM_DELROUTE:
		if len(m.Data) < unix.SizeofRtMsg {
			return false
		}
		for attr, value := range attributes(m.Data[unix.SizeofRtMsg:]) {
			if attr != unix.RTA_DST {
				continue
			}
			for _, p := range n.Prefixes {
				if bytes.Equal(value, p.Addr().AsSlice()) && int(m.Data[1]) == p.Bits() {
					return true
				}
			}
		}
	case unix.RTM_NEWNETCONF:
		const size = 4 // of struct netconfmsg, padded
		index, forward := int32(0), int32(1)
		for attr, value := range attributes(m.Data[min(size, len(m.Data)):]) {
			switch {
			case attr == netconfIndex && len(value) == 4:
				index = int32(binary.NativeEndian.Uint32(value))
			case attr == netconfForward && len(value) == 4:
				forward = int32(binary.NativeEndian.Uint32(value))
			}
		}
		// A message without an index is about all interfaces. A new interface also causes a message about itself, with
		// the default setting.
		return forward == 0 && index != 0
	}
	return false
}

// rulesWatch evaluates messages about nftables, which iptables-nft uses, too.
type rulesWatch struct {
	// table is the name of the network's own nftables table.
	table string
	by    func(program string)
	// pending is set during a transaction with relevant changes.
	pending bool
}

func (w *rulesWatch) matters(m syscall.NetlinkMessage) bool {
	const size = 4 // of struct nfgenmsg
	if m.Header.Type>>8 != unix.NFNL_SUBSYS_NFTABLES || len(m.Data) < size {
		return false
	}
	table, pid, name := "", uint32(0), ""
	kind := m.Header.Type & 0xff
	for attr, value := range attributes(m.Data[size:]) {
		switch {
		case kind == unix.NFT_MSG_NEWGEN && attr == unix.NFTA_GEN_PROC_PID && len(value) == 4:
			pid = binary.BigEndian.Uint32(value)
		case kind == unix.NFT_MSG_NEWGEN && attr == unix.NFTA_GEN_PROC_NAME:
			name = text(value)
		case kind != unix.NFT_MSG_NEWGEN && attr == unix.NFTA_TABLE_NAME:
			table = text(value)
		}
	}
	switch {
	case kind == unix.NFT_MSG_NEWGEN:
		if w.pending {
			w.by(fmt.Sprintf("%s, process %d", name, pid))
		}
		w.pending = false
		return false
	case table == w.table:
	case kind == unix.NFT_MSG_DELTABLE || kind == unix.NFT_MSG_DELCHAIN || kind == unix.NFT_MSG_DELRULE:
		if table != portmapTable && table != "nat" && table != "raw" {
			return false
		}
	default:
		return false
	}
	w.pending = true
	return true
}

// attributes yields netlink attributes; it stops at a malformed one.
func attributes(b []byte) func(yield func(uint16, []byte) bool) {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			size := int(binary.NativeEndian.Uint16(b))
			if size < unix.SizeofNlAttr || size > len(b) {
				return
			}
			if !yield(binary.NativeEndian.Uint16(b[2:])&^(unix.NLA_F_NESTED|unix.NLA_F_NET_BYTEORDER),
				b[unix.SizeofNlAttr:size]) {
				return
			}
			b = b[min((size+3)&^3, len(b)):]
		}
	}
}

func text(b []byte) string {
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
