package cni_test

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/cni"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

func run(t *testing.T, words ...string) string {
	t.Helper()
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Errorf("%s: %v\n%s", strings.Join(words, " "), err, out)
	}
	return string(out)
}

// Where rules are iptables', both families of them come back, and of host ports those of pods that are there; those of a
// pod that is taken down meanwhile don't stay.
func TestKeeperOfIPTables(t *testing.T) {
	if !embeddedtest.InNetwork(t) {
		return
	}
	portmap := filepath.Join(embeddedtest.Bin(t), "portmap")
	n := cni.Network{Bridge: "dhtestkeep", Owner: "0a1b2c", AddressDir: t.TempDir(), ResultsDir: t.TempDir(),
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24"), netip.MustParsePrefix("fd00:9::/64")}}
	if err := n.EnsureRules(t.Context(), cni.IPTables); err != nil {
		t.Fatal(err)
	}
	if _, err := n.EnsureBridge(nil); err != nil {
		t.Fatal(err)
	}
	one, two, gone := strings.Repeat("1", 64), strings.Repeat("2", 64), strings.Repeat("3", 64)
	remember(t, n, one, "veth1", []string{"10.9.0.2/24", "fd00:9::2/64"}, `[{"HostPort":8080,"ContainerPort":80,"Protocol":"tcp","HostIP":""},{"HostPort":53,"ContainerPort":53,"Protocol":"udp","HostIP":"127.0.0.1"}]`)
	remember(t, n, two, "veth2", []string{"10.9.0.3/24"}, "")
	remember(t, n, gone, "veth3", []string{"10.9.0.4/24"}, `[{"HostPort":8084,"ContainerPort":80,"Protocol":"tcp"}]`)
	for _, port := range []string{"veth1", "veth2"} {
		run(t, "ip", "link", "add", port, "type", "veth", "peer", "name", port+"p")
	}
	restored := make(chan string, 100)
	keeper := cni.NewKeeper(cni.KeeperConfig{Network: n, Backend: cni.IPTables, Portmap: func() (string, error) { return portmap, nil },
		Restored: func(message string) { restored <- message }, Log: logr.Discard()})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- keeper.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	await := func(what string, whole func(string) bool) {
		t.Helper()
		rules := ""
		for deadline := time.Now().Add(60 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			if rules = run(t, "iptables-save") + run(t, "ip6tables-save"); whole(rules) {
				return
			}
		}
		t.Errorf("%s: the rules are\n%s", what, rules)
	}
	whole := func(rules string) bool {
		// Drops of 127.0.0.0/8, ::1 and mapped ones, from and to; masquerading of each family.
		return strings.Count(rules, "-j DROP") == 6 && strings.Count(rules, "deckhand_0a1b2c -j MASQUERADE") == 2 &&
			strings.Count(rules, "--to-destination") == 3 && strings.Contains(rules, "--to-destination 10.9.0.2:80") &&
			strings.Contains(rules, "-d 127.0.0.1/32 -p udp -m udp --dport 53 -j DNAT") && strings.Contains(rules, "--to-destination [fd00:9::2]:80") &&
			strings.Count(rules, "-j CNI-HOSTPORT-DNAT") == 4
	}
	await("at first", whole) // the pods' veths are found unplugged, and their ports missing
	for _, port := range []string{"veth1", "veth2"} {
		if link := run(t, "ip", "link", "show", port); !strings.Contains(link, "master dhtestkeep") || !strings.Contains(link, ",UP") {
			t.Errorf("%s isn't plugged in: %s", port, link)
		}
	}
	for _, lost := range [][]string{
		{"iptables", "-t", "nat", "-F", "PREROUTING"},
		{"iptables", "-t", "nat", "-F"},
		{"ip6tables", "-t", "raw", "-F"},
		{"sh", "-c", "echo '*nat\nCOMMIT\n*raw\nCOMMIT' | tee /dev/stderr | iptables-restore"},
	} {
		for len(restored) > 0 {
			<-restored
		}
		run(t, lost...)
		select {
		case <-restored:
		case <-time.After(60 * time.Second):
			t.Errorf("%v: nothing is told", lost)
		}
		await(strings.Join(lost, " "), whole)
	}
	// The pod is taken down: the plugin deleted its rules before, and knows of no others.
	if err := os.Remove(filepath.Join(n.ResultsDir, n.Bridge+"-"+one+"-eth0")); err != nil {
		t.Error(err)
	}
	run(t, "ip", "link", "del", "veth1")
	await("after a pod's end", func(rules string) bool { return !strings.Contains(rules, "--to-destination") })
	if p := keeper.Problem(); p.Message != "" {
		t.Errorf("a problem: %+v", p)
	}
}

// remember writes what the CNI library keeps of a sandbox that was set up.
func remember(t *testing.T, n cni.Network, sandbox, port string, addresses []string, mappings string) {
	t.Helper()
	type m = map[string]any
	var ips []m
	for _, a := range addresses {
		ips = append(ips, m{"address": a, "interface": 2})
	}
	capabilities := m{}
	if mappings != "" {
		capabilities["portMappings"] = json.RawMessage(mappings)
	}
	text, err := json.Marshal(m{"kind": "cniCacheV1", "containerId": sandbox, "ifName": "eth0", "networkName": n.Bridge, "netns": "/var/run/netns/none", "capabilityArgs": capabilities,
		"result": m{"cniVersion": "1.0.0", "interfaces": []m{{"name": n.Bridge}, {"name": port}, {"name": "eth0", "sandbox": "/var/run/netns/none"}}, "ips": ips}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.ResultsDir, n.Bridge+"-"+sandbox+"-eth0"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}
