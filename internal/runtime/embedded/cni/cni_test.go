package cni

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// isolated runs do in a network namespace of its own, on a thread that ends with it.
func isolated(t *testing.T, do func(t *testing.T)) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // Never unlocked: the namespace ends with the thread.
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Errorf("this test needs root: %v", err)
			return
		}
		do(t)
	}()
	<-done
}

func network(t *testing.T, cidr string) Network {
	t.Helper()
	prefixes, err := ParseCIDRs(cidr)
	if err != nil {
		t.Fatal(err)
	}
	n := Network{Bridge: "dhtestcni", Prefixes: prefixes, Owner: "0a1b2c", AddressDir: t.TempDir(), ResultsDir: t.TempDir()}
	if err := n.Validate(); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestConflist(t *testing.T) {
	n := network(t, "10.9.0.0/24,fd00:9::/64")
	n.AddressDir = `/with "quotes"`
	text, err := n.Conflist(IPTables)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Name    string
		Plugins []struct {
			Type, Bridge, Backend string
			IsGateway, SNAT       bool
			Capabilities          map[string]bool
			IPAM                  struct {
				DataDir string
				Ranges  [][]struct{ Subnet netip.Prefix }
				Routes  []struct{ Dst netip.Prefix }
			}
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	bridge, portmap := got.Plugins[0], got.Plugins[1]
	if got.Name != "dhtestcni" || bridge.Bridge != "dhtestcni" || !bridge.IsGateway || bridge.IPAM.DataDir != `/with "quotes"` {
		t.Errorf("the bridge plugin gets %+v", bridge)
	}
	for i, want := range n.Prefixes {
		if bridge.IPAM.Ranges[i][0].Subnet != want || bridge.IPAM.Routes[i].Dst.Addr().Is4() != want.Addr().Is4() {
			t.Errorf("range and route %d are %v, %v", i, bridge.IPAM.Ranges[i], bridge.IPAM.Routes[i])
		}
	}
	if portmap.Backend != "iptables" || !portmap.SNAT || !portmap.Capabilities["portMappings"] {
		t.Errorf("the portmap plugin gets %+v", portmap)
	}
}

// containerd reloads the configuration whenever it is written.
func TestWriteLeavesTheSameFileAlone(t *testing.T) {
	n, dir := network(t, "10.9.0.0/24"), t.TempDir()
	stat := func() os.FileInfo {
		t.Helper()
		if err := n.Write(dir, NFTables); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(filepath.Join(dir, confName))
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	first := stat()
	if !os.SameFile(first, stat()) {
		t.Error("the same configuration was written again")
	}
	n.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24")}
	if os.SameFile(first, stat()) {
		t.Error("another configuration wasn't written")
	}
}

func TestBridgeHasAnOwner(t *testing.T) {
	isolated(t, func(t *testing.T) {
		n := network(t, "10.9.0.0/24")
		for range 2 {
			if _, err := n.EnsureBridge(nil); err != nil {
				t.Error(err)
			}
		}
		other := n
		other.Owner = "other"
		if _, err := other.EnsureBridge(nil); err == nil || !strings.Contains(err.Error(), "isn't of this agent") {
			t.Errorf("another agent gets the bridge: %v", err)
		}
		if err := other.RemoveBridge(); err != nil {
			t.Error(err)
		}
		if _, err := netlink.LinkByName(n.Bridge); err != nil {
			t.Errorf("another agent removed the bridge: %v", err)
		}
		for range 2 {
			if err := n.RemoveBridge(); err != nil {
				t.Error(err)
			}
		}
		if _, err := netlink.LinkByName(n.Bridge); !isNoLink(err) {
			t.Errorf("the bridge is still there: %v", err)
		}
	})
}

// A bridge that the plugin made again has no owner's name, but our address.
func TestBridgeWithoutAliasIsKnownByAddress(t *testing.T) {
	isolated(t, func(t *testing.T) {
		n := network(t, "10.9.0.0/24")
		link := addBridge(t, n.Bridge, "10.9.0.1/24")
		if !n.Owns(link) {
			t.Error("the bridge with the gateway's address isn't known")
		}
		n.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.10.0.0/24")}
		if n.Owns(link) {
			t.Error("a bridge with another address is taken for ours")
		}
	})
}

func addBridge(t *testing.T, name, address string) netlink.Link {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	link := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(link); err != nil {
		t.Error(err)
	}
	addr, err := netlink.ParseAddr(address)
	if err != nil {
		t.Error(err)
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		t.Error(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Error(err)
	}
	return link
}

func TestOverlap(t *testing.T) {
	isolated(t, func(t *testing.T) {
		addBridge(t, "office", "10.9.8.1/21")
		n := network(t, "10.9.0.0/16")
		if err := n.CheckOverlap(); err == nil || !strings.Contains(err.Error(), "10.9.8.0/21 dev office") {
			t.Errorf("the overlap is told as %v", err)
		}
		n.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.10.0.0/16")}
		if err := n.CheckOverlap(); err != nil {
			t.Error(err)
		}
		// Our own bridge's route is no obstacle.
		addBridge(t, n.Bridge, "10.10.0.1/16")
		if err := n.CheckOverlap(); err != nil {
			t.Error(err)
		}
	})
}

func rules(t *testing.T, command ...string) string {
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("%v: %v\n%s", command, err, out)
	}
	return string(out)
}

func TestMasquerade(t *testing.T) {
	for _, backend := range []Backend{NFTables, IPTables} {
		t.Run(string(backend), func(t *testing.T) {
			isolated(t, func(t *testing.T) {
				n := network(t, "10.9.0.0/24,fd00:9::/64")
				other := n
				other.Owner, other.Prefixes = "other", []netip.Prefix{netip.MustParsePrefix("10.8.0.0/24")}
				for range 2 {
					for _, network := range []Network{n, other} {
						if err := network.EnsureRules(context.Background(), backend); err != nil {
							t.Error(err)
						}
					}
				}
				all := []string{"nft", "list", "ruleset"}
				if got := strings.Count(rules(t, all...), "masquerade"); backend == NFTables && got != 3 {
					t.Errorf("%d masquerading rules instead of 3:\n%s", got, rules(t, all...))
				}
				if backend == IPTables {
					got := strings.Count(rules(t, "iptables-save")+rules(t, "ip6tables-save"), "-j MASQUERADE")
					if got != 3 {
						t.Errorf("%d masquerading rules instead of 3", got)
					}
				}
				for range 2 {
					if err := n.RemoveRules(context.Background()); err != nil {
						t.Error(err)
					}
				}
				left := rules(t, all...) + rules(t, "iptables-save") + rules(t, "ip6tables-save")
				if strings.Contains(left, "10.9.0") || strings.Contains(left, "fd00:9") || !strings.Contains(left, "10.8.0") {
					t.Errorf("left is:\n%s", left)
				}
			})
		})
	}
}

// Where only one of a prefix's two rules was removed, they are in order again; copies are removed, too.
func TestIPTablesOrderAndCopies(t *testing.T) {
	isolated(t, func(t *testing.T) {
		n := network(t, "10.9.0.0/24,fd00:9::/64")
		all := n.iptables(t.Context())
		if err := n.EnsureRules(t.Context(), IPTables); err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			rules(t, append([]string{r.program}, r.command("-D")...)...)
			if err := n.EnsureRules(t.Context(), IPTables); err != nil {
				t.Fatal(err)
			}
			for _, program := range []string{"iptables", "ip6tables"} {
				got := rules(t, program, "-t", "nat", "-S", "POSTROUTING")
				first, last := strings.Index(got, "-j RETURN"), strings.Index(got, "-j MASQUERADE")
				if first < 0 || last < first || strings.Count(got, "-j ") != 2 {
					t.Errorf("without %v %s made\n%s", r.rule, program, got)
				}
			}
		}
		for range 2 {
			for _, r := range all {
				rules(t, append([]string{r.program}, r.command("-A")...)...)
			}
		}
		if err := n.RemoveRules(t.Context()); err != nil {
			t.Error(err)
		}
		if left := rules(t, "iptables-save") + rules(t, "ip6tables-save"); strings.Contains(left, n.table()) {
			t.Errorf("left is:\n%s", left)
		}
	})
}

// A check that fails says nothing of the rule: no second one is made, and none is called missing.
func TestIPTablesCheckFails(t *testing.T) {
	isolated(t, func(t *testing.T) {
		n := network(t, "10.9.0.0/24")
		if err := n.EnsureRules(t.Context(), IPTables); err != nil {
			t.Fatal(err)
		}
		real, err := exec.LookPath("iptables")
		if err != nil {
			t.Fatal(err)
		}
		before := rules(t, real, "-t", "nat", "-S")
		dir := t.TempDir()
		path := filepath.Join(dir, "iptables")
		write(t, path, "#!/bin/sh\ncase \" $* \" in *' -C '*) exit 4;; esac\nexec "+real+" \"$@\"\n")
		if err := os.Chmod(path, 0o700); err != nil {
			t.Fatal(err)
		}
		t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
		if text, err := n.rules(t.Context(), IPTables); err == nil {
			t.Errorf("the rules are %q", text)
		}
		if err := n.EnsureRules(t.Context(), IPTables); err == nil {
			t.Error("rules are made though nobody knows which are there")
		}
		if err := n.RemoveRules(t.Context()); err == nil {
			t.Error("rules count as removed though nobody knows which are there")
		}
		if after := rules(t, real, "-t", "nat", "-S"); after != before {
			t.Errorf("the rules are\n%s\nand were\n%s", after, before)
		}
	})
}

func TestRemoveEmptyPortmap(t *testing.T) {
	isolated(t, func(t *testing.T) {
		ctx := context.Background()
		if err := RemoveEmptyPortmap(ctx); err != nil {
			t.Error(err)
		}
		rules(t, "nft", "add table ip cni_hostport; add chain ip cni_hostport hostports; add chain ip cni_hostport output; add rule ip cni_hostport output jump hostports")
		rules(t, "nft", "add table ip6 cni_hostport; add chain ip6 cni_hostport hostports; add rule ip6 cni_hostport hostports tcp dport 1 accept")
		for _, rule := range []string{
			"-N CNI-HOSTPORT-DNAT", "-N CNI-HOSTPORT-MASQ",
			"-A PREROUTING -m addrtype --dst-type LOCAL -j CNI-HOSTPORT-DNAT",
		} {
			rules(t, append([]string{"iptables", "-w", "-t", "nat"}, strings.Fields(rule)...)...)
		}
		rules(t, "iptables", "-w", "-t", "nat", "-A", "POSTROUTING", "-m", "comment", "--comment", "with a space", "-j", "CNI-HOSTPORT-MASQ")
		if err := RemoveEmptyPortmap(ctx); err != nil {
			t.Error(err)
		}
		left := rules(t, "nft", "list", "ruleset")
		if strings.Contains(left, "table ip cni_hostport") || strings.Contains(left, "CNI-HOSTPORT") || !strings.Contains(left, "table ip6 cni_hostport") {
			t.Errorf("left is:\n%s", left)
		}
		// A chain with someone's port in it stays.
		for _, rule := range []string{"-N CNI-HOSTPORT-DNAT", "-N CNI-DN-1", "-A CNI-HOSTPORT-DNAT -j CNI-DN-1"} {
			rules(t, append([]string{"iptables", "-w", "-t", "nat"}, strings.Fields(rule)...)...)
		}
		if err := RemoveEmptyPortmap(ctx); err != nil {
			t.Error(err)
		}
		if left := rules(t, "iptables-save"); !strings.Contains(left, "CNI-DN-1") {
			t.Errorf("someone's chain was removed:\n%s", left)
		}
	})
}

func TestForwardDropped(t *testing.T) {
	isolated(t, func(t *testing.T) {
		ctx := context.Background()
		if ForwardDropped(ctx) {
			t.Error("a fresh firewall is said to drop")
		}
		rules(t, "iptables", "-w", "-P", "FORWARD", "DROP")
		if !ForwardDropped(ctx) {
			t.Error("the policy DROP goes unseen")
		}
	})
}

func TestEnableForwarding(t *testing.T) {
	isolated(t, func(t *testing.T) {
		n := network(t, "10.9.0.0/24")
		path := "/proc/sys/net/ipv4/ip_forward"
		if err := os.WriteFile(path, []byte("0"), 0o600); err != nil {
			t.Error(err)
		}
		for _, want := range [][]string{{"net.ipv4.ip_forward"}, nil} {
			changed, err := n.EnableForwarding()
			if err != nil || !slices.Equal(changed, want) {
				t.Errorf("changed %q instead of %q, error %v", changed, want, err)
			}
		}
	})
}

func TestReleaseAddresses(t *testing.T) {
	n := network(t, "10.9.0.0/24")
	dir := filepath.Join(n.AddressDir, n.Bridge)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{"10.9.0.2": "dead\r\neth0", "10.9.0.3": "alive\r\neth0", "fd00::2": "dead\r\neth0", "last_reserved_ip.0": "10.9.0.3", "lock": ""} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	released, err := n.ReleaseAddresses(func(id string) bool { return id == "alive" })
	if err != nil || !slices.Equal(released, []string{"10.9.0.2", "fd00::2"}) {
		t.Errorf("released %q, error %v", released, err)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 3 {
		t.Errorf("left are %v, error %v", left, err)
	}
}

func TestSplitRule(t *testing.T) {
	got := splitRule(`-A POSTROUTING -m comment --comment "CNI portfwd requiring masquerade" -j X`)
	want := []string{"-A", "POSTROUTING", "-m", "comment", "--comment", "CNI portfwd requiring masquerade", "-j", "X"}
	if !slices.Equal(got, want) {
		t.Errorf("split into %q", got)
	}
}
