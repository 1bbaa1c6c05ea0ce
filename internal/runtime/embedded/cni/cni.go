// Package cni provides the pod network: it writes the configuration that containerd's CRI passes to the CNI plugins
// bridge, host-local and portmap, and sets up their shared parts on the host: the bridge, forwarding, masquerading.
//
// Masquerading is one rule for the whole pod network, which this package creates; the bridge plugin would create a
// rule for each pod. So starting a pod runs no netfilter program for it, and there is only one rule to remove.
package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// Network is a pod network on this host.
type Network struct {
	// Bridge is the name of the host's network interface, and of the CNI network.
	Bridge string
	// Prefixes are the pod CIDRs: one, or one of each IP family.
	Prefixes []netip.Prefix
	// Owner marks the bridge and the netfilter rules as one agent's. It consists of letters and digits.
	Owner string
	// AddressDir is where host-local reserves addresses.
	AddressDir string
	// ResultsDir is where the CNI library caches results.
	ResultsDir string
}

// interfaceName matches names that both the kernel (IFNAMSIZ) and the bridge plugin accept.
var interfaceName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_.-]{0,14}$`)

// ParseCIDRs parses "10.1.0.0/22" or, for two families, "10.1.0.0/22,fd00:1::/112".
func ParseCIDRs(text string) ([]netip.Prefix, error) {
	var all []netip.Prefix
	for _, part := range strings.Split(text, ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(part))
		if err != nil {
			return nil, fmt.Errorf("podCIDR %q: %w", text, err)
		}
		if p != p.Masked() {
			return nil, fmt.Errorf("podCIDR %q: %s has host bits set, did you mean %s?", text, p, p.Masked())
		}
		if p.Addr().BitLen()-p.Bits() < 2 {
			return nil, fmt.Errorf("podCIDR %q: %s is too small for a gateway and a pod", text, p)
		}
		all = append(all, p)
	}
	if len(all) > 2 || len(all) == 2 && all[0].Addr().Is4() == all[1].Addr().Is4() {
		return nil, fmt.Errorf("podCIDR %q: give one CIDR, or one of IPv4 and one of IPv6", text)
	}
	return all, nil
}

// Validate checks the fields that become part of commands and file names.
func (n Network) Validate() error {
	if !interfaceName.MatchString(n.Bridge) {
		return fmt.Errorf("bridge %q: has to be an interface name of at most 15 letters, digits, '_', '.' or '-'",
			n.Bridge)
	}
	if len(n.Prefixes) == 0 {
		return errors.New("podCIDR: is empty")
	}
	return nil
}

// conflist is the CNI network configuration list. Its version is 1.0.0, because since 1.1.0 every Status call of
// the CRI would run every plugin.
type conflist struct {
	CNIVersion string `json:"cniVersion"`
	Name       string `json:"name"`
	Plugins    []any  `json:"plugins"`
}

type bridgePlugin struct {
	Type        string    `json:"type"`
	Bridge      string    `json:"bridge"`
	IsGateway   bool      `json:"isGateway"`
	HairpinMode bool      `json:"hairpinMode"`
	IPAM        hostLocal `json:"ipam"`
}

type hostLocal struct {
	Type    string      `json:"type"`
	DataDir string      `json:"dataDir"`
	Ranges  [][]ipRange `json:"ranges"`
	Routes  []ipRoute   `json:"routes"`
}

type ipRange struct {
	Subnet string `json:"subnet"`
}

type ipRoute struct {
	Dst string `json:"dst"`
}

type portmapPlugin struct {
	Type         string          `json:"type"`
	Capabilities map[string]bool `json:"capabilities"`
	SNAT         bool            `json:"snat"`
	Backend      string          `json:"backend"`
}

// Plugins returns the CNI plugins that the configuration uses.
func Plugins() []string { return []string{"bridge", "host-local", "portmap"} }

// Conflist returns the configuration file's content.
func (n Network) Conflist(backend Backend) ([]byte, error) {
	ipam := hostLocal{Type: "host-local", DataDir: n.AddressDir}
	for _, p := range n.Prefixes {
		ipam.Ranges = append(ipam.Ranges, []ipRange{{Subnet: p.String()}})
		dst := "0.0.0.0/0"
		if !p.Addr().Is4() {
			dst = "::/0"
		}
		ipam.Routes = append(ipam.Routes, ipRoute{Dst: dst})
	}
	text, err := json.MarshalIndent(conflist{
		CNIVersion: "1.0.0",
		Name:       n.Bridge,
		Plugins: []any{
			bridgePlugin{Type: "bridge", Bridge: n.Bridge, IsGateway: true, HairpinMode: true, IPAM: ipam},
			portmapPlugin{Type: "portmap", Capabilities: map[string]bool{"portMappings": true}, SNAT: true,
				Backend: string(backend)},
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the CNI configuration: %w", err)
	}
	return append(text, '\n'), nil
}

// confName sorts before names that administrators might add; containerd uses the first file.
const confName = "10-deckhand.conflist"

// Write writes the configuration into dir. It doesn't touch an unchanged file, because containerd would reload it.
func (n Network) Write(dir string, backend Backend) error {
	text, err := n.Conflist(backend)
	if err != nil {
		return err
	}
	path := filepath.Join(dir, confName)
	if old, err := os.ReadFile(path); err == nil && string(old) == string(text) {
		return nil
	}
	return atomicfile.Write(path, text, 0o644)
}
