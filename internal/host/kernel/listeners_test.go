package kernel

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestListeners(t *testing.T) {
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	all, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	udp, err := net.ListenPacket("udp4", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	conn, err := net.Dial("tcp4", tcp.Addr().String()) // whose port nobody is kept from
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	found, err := Listeners("/proc")
	if err != nil {
		t.Fatal(err)
	}
	find := func(protocol v1.Protocol, address string, port int) *Listener {
		i := slices.IndexFunc(found, func(l Listener) bool {
			return l.Protocol == protocol && int(l.Port) == port && (address == "" && l.Address.IsUnspecified() || address != "" && l.Address == netip.MustParseAddr(address))
		})
		if i < 0 {
			return nil
		}
		return &found[i]
	}
	l := find(v1.ProtocolTCP, "127.0.0.1", tcp.Addr().(*net.TCPAddr).Port)
	if l == nil || find(v1.ProtocolTCP, "", all.Addr().(*net.TCPAddr).Port) == nil || find(v1.ProtocolUDP, "127.0.0.2", udp.LocalAddr().(*net.UDPAddr).Port) == nil {
		t.Fatalf("found %+v", found)
	}
	if c := find(v1.ProtocolTCP, "127.0.0.1", conn.LocalAddr().(*net.TCPAddr).Port); c != nil {
		t.Errorf("a connection counts as a listener: %+v", c)
	}
	if p, ok := l.Owner("/proc"); !ok || p.PID != os.Getpid() || !strings.HasPrefix(p.Name, "kernel.test") {
		t.Errorf("its owner is %+v, %v", p, ok)
	}
}

func TestEndpoint(t *testing.T) {
	for _, bad := range []string{"", "0100007F", "0100007F:", "0100007F:1F90F", "XX00007F:1F90", "0100:1F90"} {
		if ip, port, err := endpoint(bad); err == nil {
			t.Errorf("%q is taken for %s port %d", bad, ip, port)
		}
	}
}
