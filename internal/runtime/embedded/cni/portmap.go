package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/knftables"
)

// ResultsDir is where the CNI library caches results; the CRI has no setting for it.
const ResultsDir = "/var/lib/cni/results"

// podInterface is the name of the interface in each pod, as in containerd's CRI.
const podInterface = "eth0"

// result returns the path of a sandbox's cached result.
func (n Network) result(sandbox string) string {
	return filepath.Join(n.ResultsDir, n.Bridge+"-"+sandbox+"-"+podInterface)
}

// Remembered returns the sandboxes of this network with a cached result: those that the CNI library set up and
// didn't tear down.
func (n Network) Remembered() []string {
	files, err := filepath.Glob(n.result("*"))
	if err != nil {
		return nil
	}
	var ids []string
	for _, f := range files {
		id := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), n.Bridge+"-"), "-"+podInterface)
		// Another network's name may begin with ours and a dash.
		if isSandboxID(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func isSandboxID(id string) bool {
	return len(id) == 64 && strings.Trim(id, "0123456789abcdef") == ""
}

// ForgetResults removes the CNI library's cached results of this network.
func (n Network) ForgetResults() error {
	var errs []error
	for _, id := range n.Remembered() {
		errs = append(errs, os.Remove(n.result(id)))
	}
	for _, dir := range []string{n.ResultsDir, filepath.Dir(n.ResultsDir)} {
		// A directory that isn't empty is used by other networks.
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 {
			errs = append(errs, os.Remove(dir))
		}
	}
	return errors.Join(errs...)
}

// attachment is a sandbox's connection to the network, from the CNI library's cache.
type attachment struct {
	sandbox string
	// netns is the path of its network namespace, port the host's end of its interface.
	netns, port string
	addresses   []netip.Addr
	// mappings are the sandbox's host ports in the plugin's JSON form. hostIPs has the host address of each; an
	// invalid address stands for all addresses of the host.
	mappings json.RawMessage
	hostIPs  []netip.Addr
	// result is the result of the last plugin.
	result json.RawMessage
}

// maxResult bounds how much of one cached result is read, in bytes.
const maxResult = 4 << 20

// broken is the error for an unreadable result of a sandbox. The CNI library writes its files in place: either it
// is still writing this file, or the host lost power during the write.
type broken struct {
	sandbox string
	written time.Time
	err     error
}

func (b *broken) Error() string { return b.err.Error() }

// attachments returns the attachments of all sandboxes whose network is set up. It omits sandboxes that are torn
// down meanwhile, and returns unreadable results separately.
func (n Network) attachments() ([]attachment, []*broken, error) {
	var all []attachment
	var left []*broken
	var errs []error
	for _, id := range n.Remembered() {
		a, err := n.attachment(id)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if b, ok := errors.AsType[*broken](err); ok {
			left = append(left, b)
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("read the cached CNI result of sandbox %s: %w", id, err))
			continue
		}
		all = append(all, a)
	}
	return all, left, errors.Join(errs...)
}

// attachment reads the result of a sandbox. The error is a *broken if the result is invalid.
func (n Network) attachment(sandbox string) (attachment, error) {
	f, err := os.Open(n.result(sandbox))
	if err != nil {
		return attachment{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return attachment{}, err
	}
	text, err := io.ReadAll(io.LimitReader(f, maxResult))
	if err != nil {
		return attachment{}, err
	}
	a, err := n.parse(sandbox, text)
	if err != nil {
		return attachment{}, &broken{sandbox: sandbox, written: info.ModTime(), err: err}
	}
	return a, nil
}

func (n Network) parse(sandbox string, text []byte) (attachment, error) {
	// The library's cniCacheV1. containerd has no JSON names for the fields of a mapping; decoding ignores case.
	var cached struct {
		NetNS          string
		CapabilityArgs struct{ PortMappings json.RawMessage }
		Result         json.RawMessage
	}
	if err := json.Unmarshal(text, &cached); err != nil {
		return attachment{}, err
	}
	var result struct {
		Interfaces []struct{ Name, Sandbox string }
		IPs        []struct{ Address netip.Prefix }
	}
	if err := json.Unmarshal(cached.Result, &result); err != nil {
		return attachment{}, err
	}
	a := attachment{sandbox: sandbox, netns: cached.NetNS, mappings: cached.CapabilityArgs.PortMappings,
		result: cached.Result}
	for _, i := range result.Interfaces {
		if i.Sandbox == "" && i.Name != n.Bridge {
			a.port = i.Name
		}
	}
	for _, ip := range result.IPs {
		a.addresses = append(a.addresses, ip.Address.Addr())
	}
	var mappings []struct{ HostIP string }
	if len(a.mappings) > 0 {
		if err := json.Unmarshal(a.mappings, &mappings); err != nil {
			return attachment{}, err
		}
	}
	for _, m := range mappings {
		ip, err := netip.ParseAddr(m.HostIP)
		if err != nil {
			ip = netip.Addr{} // the mapping is for all addresses
		}
		a.hostIPs = append(a.hostIPs, ip.Unmap())
	}
	return a, nil
}

// mapped returns how many host ports of one IP family (IPv4 if v4 is true) the portmap plugin creates for the
// sandbox.
func (a *attachment) mapped(v4 bool) int {
	if !slices.ContainsFunc(a.addresses, func(ip netip.Addr) bool { return ip.Is4() == v4 }) {
		return 0
	}
	count := 0
	for _, ip := range a.hostIPs {
		if !ip.IsValid() || ip.Is4() == v4 {
			count++
		}
	}
	return count
}

// UnmapPorts runs the portmap plugin at the given path to delete a sandbox's rules (operation DEL of the CNI
// specification). A sandbox without rules isn't an error.
func (n Network) UnmapPorts(ctx context.Context, plugin string, backend Backend, sandbox string) error {
	// The sandbox's ports aren't recorded any more, but the plugin does nothing without at least one port. It finds
	// the rules by the sandbox's ID alone, so any port will do.
	ports := json.RawMessage(`[{"hostPort":1,"containerPort":1,"protocol":"tcp"}]`)
	if err := n.runPortmap(ctx, plugin, backend, "DEL", &attachment{sandbox: sandbox, mappings: ports}); err != nil {
		return fmt.Errorf("remove the port mappings of sandbox %s: %w", sandbox, err)
	}
	return nil
}

// mapPorts runs the portmap plugin to recreate a sandbox's rules. The plugin's operation ADD would duplicate
// existing rules, so remaining rules are deleted first.
func (n Network) mapPorts(ctx context.Context, plugin string, backend Backend, a *attachment) error {
	if err := n.UnmapPorts(ctx, plugin, backend, a.sandbox); err != nil {
		return err
	}
	if err := n.runPortmap(ctx, plugin, backend, "ADD", a); err != nil {
		return fmt.Errorf("make the port mappings of sandbox %s again: %w", a.sandbox, err)
	}
	return nil
}

// runPortmap runs the portmap plugin alone, as the CNI library does after the other plugins.
func (n Network) runPortmap(ctx context.Context, plugin string, backend Backend, command string, a *attachment) error {
	request := struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
		portmapPlugin
		RuntimeConfig map[string]any  `json:"runtimeConfig"`
		PrevResult    json.RawMessage `json:"prevResult,omitempty"`
	}{"1.0.0", n.Bridge, portmapPlugin{Type: "portmap", SNAT: true, Backend: string(backend)},
		map[string]any{"portMappings": a.mappings}, a.result}
	conf, err := json.Marshal(request)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, plugin)
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+a.sandbox, "CNI_IFNAME="+podInterface,
		"CNI_NETNS="+a.netns,
		"CNI_PATH="+filepath.Dir(plugin), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	cmd.Stdin = bytes.NewReader(conf)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(out.String()))
	}
	return nil
}

// portmapTable is the portmap plugin's table, for IPv4 and for IPv6.
const portmapTable = "cni_hostport"

// The portmap plugin's nftables chains with a rule per pod.
var portmapChains = []string{"hostports", "hostip_hostports", "masquerading"}

// RemoveEmptyPortmap removes the tables and chains that portmap shares between all pods of the host, if they have
// no rule of any pod.
func RemoveEmptyPortmap(ctx context.Context) error {
	var errs []error
	for _, family := range []knftables.Family{knftables.IPv4Family, knftables.IPv6Family} {
		if err := removeEmptyTable(ctx, family); err != nil {
			errs = append(errs, fmt.Errorf("remove portmap's empty table: %w", err))
		}
	}
	for _, program := range []string{"iptables", "ip6tables"} {
		if err := removeEmptyChains(ctx, program); err != nil {
			errs = append(errs, fmt.Errorf("remove portmap's empty chains: %w", err))
		}
	}
	return errors.Join(errs...)
}

func removeEmptyTable(ctx context.Context, family knftables.Family) error {
	if _, err := lookProgram("nft"); err != nil {
		return nil
	}
	nft, err := knftables.New(family, portmapTable)
	if err != nil {
		return err
	}
	tables := 0
	for _, chain := range portmapChains {
		rules, err := nft.ListRules(ctx, chain)
		if knftables.IsNotFound(err) {
			continue
		}
		if err != nil {
			return err
		}
		tables++
		if len(rules) > 0 {
			return nil
		}
	}
	if tables == 0 {
		return nil
	}
	tx := nft.NewTransaction()
	tx.Delete(&knftables.Table{})
	if err := nft.Run(ctx, tx); err != nil && !goneMeanwhile(ctx, nft) {
		return err
	}
	return nil
}

// goneMeanwhile reports whether the table was removed by another teardown on this host.
func goneMeanwhile(ctx context.Context, nft knftables.Interface) bool {
	_, err := nft.ListRules(ctx, portmapChains[0])
	return knftables.IsNotFound(err)
}

// removeEmptyChains removes the chains that portmap's iptables backend shares between all pods, unless a pod has
// host ports. The chains are in the table nat: CNI-DN-* for each pod, with a jump from CNI-HOSTPORT-DNAT.
func removeEmptyChains(ctx context.Context, program string) error {
	if _, err := lookProgram(program); err != nil {
		return nil
	}
	rules, err := output(ctx, program, "-w", "-t", "nat", "-S")
	if err != nil {
		return nil // The table doesn't exist, so it has no rules.
	}
	var jumps, chains []string
	for line := range strings.Lines(string(rules)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "-N CNI-DN-"), strings.HasPrefix(line, "-A CNI-HOSTPORT-DNAT "):
			return nil // a port in use
		case strings.HasPrefix(line, "-N CNI-HOSTPORT-"):
			chains = append(chains, strings.TrimPrefix(line, "-N "))
		case strings.HasPrefix(line, "-A ") && strings.Contains(line, " -j CNI-HOSTPORT-"):
			jumps = append(jumps, line)
		}
	}
	var errs []error
	for _, jump := range jumps {
		args := append([]string{"-w", "-t", "nat", "-D"}, splitRule(jump)[1:]...)
		errs = append(errs, try(ctx, program, args...))
	}
	for _, op := range []string{"-F", "-X"} {
		for _, chain := range chains {
			errs = append(errs, try(ctx, program, "-w", "-t", "nat", op, chain))
		}
	}
	return errors.Join(errs...)
}

// splitRule splits a line of iptables -S, where a comment with spaces is quoted.
func splitRule(line string) []string {
	var args []string
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			args = append(args, part)
			continue
		}
		args = append(args, strings.Fields(part)...)
	}
	return args
}

// unmapped returns the attachments with missing host ports.
func (n Network) unmapped(ctx context.Context, backend Backend, all []attachment) ([]attachment, error) {
	missing := map[string]bool{}
	for _, v4 := range []bool{true, false} {
		wanted := 0
		for i := range all {
			wanted += all[i].mapped(v4)
		}
		if wanted == 0 {
			continue
		}
		count, err := mappings(ctx, backend, v4)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if a := &all[i]; a.mapped(v4) > 0 && count(a.sandbox) < a.mapped(v4) {
				missing[a.sandbox] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(a attachment) bool { return !missing[a.sandbox] }), nil
}

// mappings returns a function that counts the working host ports of a sandbox: 0 if rules that portmap shares
// between all pods are missing.
func mappings(ctx context.Context, backend Backend, v4 bool) (count func(sandbox string) int, err error) {
	if backend == IPTables {
		program := "iptables"
		if !v4 {
			program = "ip6tables"
		}
		rules, err := output(ctx, program, "-w", "-t", "nat", "-S")
		return iptablesMappings(string(rules)), err
	}
	family := "ip"
	if !v4 {
		family = "ip6"
	}
	listing, err := listTable(ctx, family, portmapTable)
	return nftMappings(listing), err
}

// nftMappings parses the output of `nft list table` for the portmap plugin's table.
func nftMappings(listing string) func(sandbox string) int {
	chains, chain := map[string][]string{}, ""
	for line := range strings.Lines(listing) {
		line = strings.TrimSpace(line)
		if name, ok := strings.CutPrefix(line, "chain "); ok {
			chain = strings.TrimSuffix(name, " {")
			continue
		}
		chains[chain] = append(chains[chain], line)
	}
	has := func(chain, part string) bool {
		return slices.ContainsFunc(chains[chain], func(line string) bool { return strings.Contains(line, part) })
	}
	counts := map[string]int{}
	for _, chain := range []string{"hostports", "hostip_hostports"} {
		for _, line := range chains[chain] {
			if _, comment, ok := strings.Cut(line, " comment "); ok && strings.Contains(line, " dnat to ") {
				counts[strings.Trim(comment, `"`)]++
			}
		}
	}
	for _, hook := range []string{"prerouting", "output"} {
		// The hook's chain has to exist, with its jump. Newer plugins have another chain in between, which needs its
		// jump, too.
		if !has(hook, "hook "+hook) || !has(hook, "jump hostports") || has(hook, "jump hostports_all") &&
			!has("hostports_all", "jump hostports") {
			return func(string) int { return 0 }
		}
	}
	return func(sandbox string) int {
		if !has("masquerading", sandbox) {
			return 0
		}
		return counts[sandbox]
	}
}

// iptablesMappings parses the output of `iptables -S` for the table nat.
func iptablesMappings(rules string) func(sandbox string) int {
	var entries, shared []string
	targets := map[string]int{} // by chain
	for line := range strings.Lines(rules) {
		words := splitRule(strings.TrimSpace(line))
		if len(words) < 4 || words[0] != "-A" {
			continue
		}
		chain, rest := words[1], strings.Join(words[2:], " ")
		switch {
		case chain == "CNI-HOSTPORT-DNAT":
			entries = append(entries, rest)
		case strings.HasPrefix(chain, "CNI-DN-") && strings.Contains(rest, "-j DNAT "):
			targets[chain]++
		case strings.Contains(rest, "-j CNI-HOSTPORT-"):
			shared = append(shared, chain+" "+rest[strings.Index(rest, "CNI-HOSTPORT-"):])
		}
	}
	for _, jump := range []string{"PREROUTING CNI-HOSTPORT-DNAT", "OUTPUT CNI-HOSTPORT-DNAT",
		"POSTROUTING CNI-HOSTPORT-MASQ"} {
		if !slices.Contains(shared, jump) {
			return func(string) int { return 0 }
		}
	}
	return func(sandbox string) int {
		// One entry covers several ports; all entries of a sandbox have the same target.
		for _, e := range entries {
			if _, target, ok := strings.Cut(e, "-j "); ok && strings.Contains(e, sandbox) {
				return targets[target]
			}
		}
		return 0
	}
}
