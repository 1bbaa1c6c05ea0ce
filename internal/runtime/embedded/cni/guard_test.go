package cni

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A pod that may craft packets (NET_RAW is among a container's default capabilities) gets no
// answer from services that listen on the host's loopback addresses only, although the portmap
// plugin has set route_localnet on the bridge; and it gets its answers from others.
func TestPodsCantReachTheHostsLoopback(t *testing.T) {
	for _, backend := range []Backend{NFTables, IPTables} {
		t.Run(string(backend), func(t *testing.T) {
			isolated(t, func(t *testing.T) {
				n := network(t, "10.9.0.0/24,fd00:9::/64")
				ctx := context.Background()
				if _, err := n.EnsureBridge(nil); err != nil {
					t.Error(err)
					return
				}
				pod := plug(t, n, "10.9.0.2")
				if pod == nil {
					return
				}
				write(t, "/proc/sys/net/ipv4/conf/"+n.Bridge+"/route_localnet", "1")
				service := listen(t, "127.0.0.1")
				other := listen(t, "127.7.7.7")
				open := listen(t, "10.9.0.1")
				// A host port of 127.0.0.1 only: it isn't published to pods either.
				rules(t, "nft", fmt.Sprintf("add table ip published; add chain ip published p { type nat hook prerouting priority dstnat; }; add rule ip published p ip daddr 127.0.0.1 tcp dport 81 dnat to 10.9.0.1:%d", open))
				attacks := []packet{
					{"10.9.0.2", "127.0.0.1", service}, {"10.9.0.2", "127.7.7.7", other},
					{"10.9.0.2", "127.0.0.1", 81},
				}
				for _, a := range attacks {
					if !pod.answered(t, a, packet{"10.9.0.2", "10.9.0.1", open}) {
						t.Errorf("without the guard %+v isn't answered: the test shows nothing", a)
					}
				}
				write(t, "/proc/sys/net/ipv4/conf/all/accept_local", "1") // as balancers of load want it
				if !pod.passes(t, "127.0.0.1", "10.9.0.1") {
					t.Error("without the guard the host takes nothing from a pod with its own loopback address: the test shows nothing")
				}
				for range 2 {
					if err := n.EnsureRules(ctx, backend); err != nil {
						t.Error(err)
					}
				}
				if pod.passes(t, "127.0.0.1", "10.9.0.1") {
					t.Error("a pod's packet from 127.0.0.1 arrives")
				}
				for _, a := range attacks {
					if pod.answered(t, a, packet{"10.9.0.2", "10.9.0.1", open}) {
						t.Errorf("%+v is answered", a)
					}
				}
				// What the host sends to itself, and gets back from pods, isn't touched.
				conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(service)))
				if err != nil {
					t.Errorf("the host doesn't reach its own loopback address: %v", err)
				} else {
					conn.Close()
				}
				if err := n.RemoveRules(ctx); err != nil {
					t.Error(err)
				}
				left := rules(t, "nft", "list", "ruleset") + rules(t, "iptables-save") + rules(t, "ip6tables-save")
				if strings.Contains(left, n.Bridge) {
					t.Errorf("left is:\n%s", left)
				}
			})
		})
	}
}

// packet is a TCP SYN from and to these addresses.
type packet struct {
	from, to string
	port     int
}

// podEnd sends and receives frames as a pod that is plugged into the bridge.
type podEnd struct {
	fd          int
	mac, bridge net.HardwareAddr
}

// plug makes a veth into the network's bridge and returns its other end. That stays in this
// namespace, without an address: its frames are written raw.
func plug(t *testing.T, n Network, address string) *podEnd {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "host0"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "pod0"}); err != nil {
		t.Error(err)
		return nil
	}
	link := func(name string) netlink.Link {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Error(err)
			runtime.Goexit()
		}
		return l
	}
	for _, name := range []string{"lo", "host0", "pod0", n.Bridge} {
		if err := netlink.LinkSetUp(link(name)); err != nil {
			t.Error(err)
		}
	}
	if err := netlink.LinkSetMaster(link("host0"), link(n.Bridge)); err != nil {
		t.Error(err)
	}
	gateway, err := netlink.ParseAddr("10.9.0.1/24")
	if err != nil {
		t.Error(err)
	}
	if err := netlink.AddrAdd(link(n.Bridge), gateway); err != nil && err != unix.EEXIST {
		t.Error(err)
	}
	pod, bridge := link("pod0"), link(n.Bridge)
	// The host knows where the pod is, as it would from ARP.
	if err := netlink.NeighSet(&netlink.Neigh{LinkIndex: bridge.Attrs().Index, State: netlink.NUD_PERMANENT, IP: net.ParseIP(address), HardwareAddr: pod.Attrs().HardwareAddr}); err != nil {
		t.Error(err)
	}
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL)))
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: pod.Attrs().Index}); err != nil {
		t.Error(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 20}); err != nil {
		t.Error(err)
	}
	return &podEnd{fd, pod.Attrs().HardwareAddr, bridge.Attrs().HardwareAddr}
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// answered sends the packet, and after it one that is answered for certain: what comes before
// that answer is the first one's. Both are handled in this order.
func (p *podEnd) answered(t *testing.T, first, last packet) bool {
	source := uint16(40000 + time.Now().UnixNano()%20000)
	p.send(t, first, source)
	p.send(t, last, source+1)
	got := false
	buffer := make([]byte, 2048)
	for {
		size, from, err := unix.Recvfrom(p.fd, buffer, 0)
		if err != nil {
			t.Errorf("no answer to %+v: %v", last, err)
			return got
		}
		if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING || size < 54 || binary.BigEndian.Uint16(buffer[12:]) != unix.ETH_P_IP || buffer[23] != unix.IPPROTO_TCP {
			continue
		}
		switch binary.BigEndian.Uint16(buffer[36:]) {
		case source:
			got = true
		case source + 1:
			return got
		}
	}
}

// passes reports whether a datagram with this source is taken by the host, before one of the pod's own address.
func (p *podEnd) passes(t *testing.T, spoofed, to string) bool {
	l, err := net.ListenPacket("udp", to+":0")
	if err != nil {
		t.Error(err)
		return false
	}
	defer l.Close()
	if err := l.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Error(err)
	}
	datagram := make([]byte, 8)
	binary.BigEndian.PutUint16(datagram[2:], uint16(l.LocalAddr().(*net.UDPAddr).Port))
	datagram[5] = 8
	p.frame(t, spoofed, to, unix.IPPROTO_UDP, datagram)
	p.frame(t, "10.9.0.2", to, unix.IPPROTO_UDP, datagram)
	_, from, err := l.ReadFrom(make([]byte, 8))
	if err != nil {
		t.Error(err)
		return false
	}
	return from.(*net.UDPAddr).IP.String() == spoofed
}

func (p *podEnd) send(t *testing.T, k packet, source uint16) {
	from, to := netip.MustParseAddr(k.from).As4(), netip.MustParseAddr(k.to).As4()
	tcp := make([]byte, 20)
	binary.BigEndian.PutUint16(tcp[0:], source)
	binary.BigEndian.PutUint16(tcp[2:], uint16(k.port))
	tcp[12], tcp[13], tcp[14] = 5<<4, 0x02, 0xff // SYN
	pseudo := append(append(append([]byte{}, from[:]...), to[:]...), 0, unix.IPPROTO_TCP, 0, byte(len(tcp)))
	binary.BigEndian.PutUint16(tcp[16:], checksum(append(pseudo, tcp...)))
	p.frame(t, k.from, k.to, unix.IPPROTO_TCP, tcp)
}

// frame sends an IPv4 packet to the bridge's own address on the link.
func (p *podEnd) frame(t *testing.T, source, destination string, protocol byte, data []byte) {
	from, to := netip.MustParseAddr(source).As4(), netip.MustParseAddr(destination).As4()
	frame := append(append(append([]byte{}, p.bridge...), p.mac...), 0x08, 0x00)
	ip := []byte{0x45, 0, 0, byte(20 + len(data)), 0, 1, 0, 0, 64, protocol, 0, 0}
	ip = append(append(ip, from[:]...), to[:]...)
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	if _, err := unix.Write(p.fd, append(append(frame, ip...), data...)); err != nil {
		t.Error(err)
	}
}

func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// listen listens on this address of the namespace and returns the port.
func listen(t *testing.T, address string) int {
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Error(err)
		return 0
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

func write(t *testing.T, path, text string) {
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Error(err)
	}
}
