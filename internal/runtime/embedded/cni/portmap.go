package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/knftables"
)

// resultsDir is where the CNI library keeps the results of what it set up; the
// CRI has no setting for it.
const resultsDir = "/var/lib/cni/results"

// podInterface is the name of the interface in each pod, as containerd's CRI has it.
const podInterface = "eth0"

// Remembered are the sandboxes of this network that the CNI library set up and
// hasn't removed.
func (n Network) Remembered() []string {
	files, err := filepath.Glob(filepath.Join(resultsDir, n.Bridge+"-*-"+podInterface))
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

// ForgetResults removes what the CNI library remembers of this network.
func (n Network) ForgetResults() error {
	var errs []error
	for _, id := range n.Remembered() {
		errs = append(errs, os.Remove(filepath.Join(resultsDir, n.Bridge+"-"+id+"-"+podInterface)))
	}
	for _, dir := range []string{resultsDir, filepath.Dir(resultsDir)} {
		// Not empty is as it should be: then it is used by others.
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 {
			errs = append(errs, os.Remove(dir))
		}
	}
	return errors.Join(errs...)
}

// UnmapPorts has the portmap plugin at the given path delete a sandbox's rules,
// as the CNI specification's DEL. Without any it does nothing.
func (n Network) UnmapPorts(ctx context.Context, plugin string, backend Backend, sandbox string) error {
	request := struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
		portmapPlugin
		RuntimeConfig map[string]any `json:"runtimeConfig"`
	}{CNIVersion: "1.0.0", Name: n.Bridge, portmapPlugin: portmapPlugin{Type: "portmap", SNAT: true, Backend: string(backend)}}
	// Which ports were mapped isn't known any more. The plugin goes by the sandbox
	// alone, but only looks when there is at least one port.
	request.RuntimeConfig = map[string]any{"portMappings": []map[string]any{{"hostPort": 1, "containerPort": 1, "protocol": "tcp"}}}
	conf, err := json.Marshal(request)
	if err != nil {
		return err
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(ctx, plugin)
	cmd.Env = append(os.Environ(), "CNI_COMMAND=DEL", "CNI_CONTAINERID="+sandbox, "CNI_IFNAME="+podInterface,
		"CNI_PATH="+filepath.Dir(plugin), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	cmd.Stdin = bytes.NewReader(conf)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("remove the port mappings of sandbox %s: %w: %s", sandbox, err, strings.TrimSpace(out.String()))
	}
	return nil
}

// The portmap plugin's chains that hold a rule per pod, for nftables.
var portmapChains = []string{"hostports", "hostip_hostports", "masquerading"}

// RemoveEmptyPortmap removes the tables and chains that portmap shares between
// all pods of the host, if no pod of anyone's has a rule in them.
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
	nft, err := knftables.New(family, "cni_hostport")
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

// goneMeanwhile reports whether another teardown on this host was faster.
func goneMeanwhile(ctx context.Context, nft knftables.Interface) bool {
	_, err := nft.ListRules(ctx, portmapChains[0])
	return knftables.IsNotFound(err)
}

// removeEmptyChains does the same for the iptables backend, whose chains are in
// the table nat: CNI-DN-* for each pod, jumped to from CNI-HOSTPORT-DNAT.
func removeEmptyChains(ctx context.Context, program string) error {
	if _, err := lookProgram(program); err != nil {
		return nil
	}
	rules, err := output(ctx, program, "-w", "-t", "nat", "-S")
	if err != nil {
		return nil // No such table, so nothing in it.
	}
	var jumps, chains []string
	for line := range strings.Lines(string(rules)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "-N CNI-DN-"), strings.HasPrefix(line, "-A CNI-HOSTPORT-DNAT "):
			return nil // Someone's port.
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
