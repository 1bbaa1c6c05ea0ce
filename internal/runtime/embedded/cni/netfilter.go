package cni

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/knftables"
)

// Backend is the program for netfilter rules; the value is the portmap plugin's name for it.
type Backend string

const (
	NFTables Backend = "nftables"
	IPTables Backend = "iptables"
)

// Detect returns the backend that works on this host, preferably nft.
func Detect(ctx context.Context) (Backend, error) {
	// Some kernels have nf_tables without the inet family, which these rules need.
	nftErr := try(ctx, "nft", "--check", "add", "table", "inet", "deckhand_check")
	if nftErr == nil {
		return NFTables, nil
	}
	iptErr := try(ctx, "iptables", "-w", "-t", "nat", "-S", "POSTROUTING")
	if iptErr == nil {
		return IPTables, nil
	}
	return "", fmt.Errorf("neither nftables nor iptables works: %w; %w", nftErr, iptErr)
}

func try(ctx context.Context, name string, args ...string) error {
	_, err := output(ctx, name, args...)
	return err
}

func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	path, err := lookProgram(name)
	if err != nil {
		return nil, err
	}
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.Bytes(), nil
}

// lookProgram also searches directories that a user's PATH often doesn't have.
func lookProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	for _, dir := range []string{"/usr/sbin/", "/sbin/"} {
		if err != nil {
			path, err = exec.LookPath(dir + name)
		}
	}
	if err != nil {
		return "", fmt.Errorf("%s isn't installed", name)
	}
	return path, nil
}

func (n Network) table() string { return "deckhand_" + n.Owner }

func (n Network) nft() (knftables.Interface, error) {
	return knftables.New(knftables.InetFamily, n.table())
}

// multicast returns the family and prefix of multicast traffic, which keeps its source address.
func multicast(p netip.Prefix) (family, prefix string) {
	if p.Addr().Is4() {
		return "ip", "224.0.0.0/4"
	}
	return "ip6", "ff00::/8"
}

// EnsureRules creates the pod network's netfilter rules: masquerading of packets from pods to other networks, and a
// guard of the host's loopback addresses. Call it before the first pod is started.
//
// The portmap plugin sets route_localnet on the bridge, so that 127.0.0.1:HOSTPORT works. With it, the kernel
// delivers a pod's packet to 127.0.0.1 to the host's own services (CVE-2020-8558). The guard drops packets from or
// to 127.0.0.0/8, ::1 and its IPv4-mapped equivalent when they arrive from the bridge, before any translation. A
// pod's replies to the host through a host port are addressed to the bridge at that point, so the guard needs no
// exceptions, not even for host ports of 127.0.0.1.
func (n Network) EnsureRules(ctx context.Context, backend Backend) error {
	var err error
	if backend == IPTables {
		err = n.ensureIPTables(ctx)
	} else {
		err = n.ensureNFT(ctx)
	}
	if err != nil {
		return fmt.Errorf("make the pod network's masquerading and the guard of the host's loopback addresses: %w", err)
	}
	return nil
}

func (n Network) ensureNFT(ctx context.Context) error {
	nft, err := n.nft()
	if err != nil {
		return err
	}
	const masquerade, guard = "postrouting", "guard"
	tx := nft.NewTransaction()
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("deckhand's pod network on " + n.Bridge)})
	for _, chain := range []knftables.Chain{
		{Name: masquerade, Type: knftables.PtrTo(knftables.NATType), Hook: knftables.PtrTo(knftables.PostroutingHook),
			Priority: knftables.PtrTo(knftables.SNATPriority)},
		{Name: guard, Type: knftables.PtrTo(knftables.FilterType), Hook: knftables.PtrTo(knftables.PreroutingHook),
			Priority: knftables.PtrTo(knftables.RawPriority)},
	} {
		tx.Add(&chain)
		tx.Flush(&knftables.Chain{Name: chain.Name})
	}
	for _, p := range n.Prefixes {
		family, mc := multicast(p)
		tx.Add(&knftables.Rule{Chain: masquerade, Rule: knftables.Concat(
			family, "saddr", p, family, "daddr != {", p, ",", mc, "} masquerade")})
	}
	for _, l := range loopback {
		for _, match := range []string{l.nft + " saddr", l.nft + " daddr"} {
			tx.Add(&knftables.Rule{Chain: guard,
				Rule: knftables.Concat("iifname", strconv.Quote(n.Bridge), match, l.prefix, "drop")})
		}
	}
	return nft.Run(ctx, tx)
}

// loopback are the addresses that only the host itself may use. On interfaces other than lo, the kernel always drops
// packets with IPv6 loopback addresses; the rules don't rely on that.
var loopback = []struct{ nft, iptables, prefix string }{
	{"ip", "iptables", "127.0.0.0/8"},
	{"ip6", "ip6tables", "::1/128"},
	{"ip6", "ip6tables", "::ffff:127.0.0.0/104"},
}

// RemoveRules removes the rules of EnsureRules, of both backends. Call it after the bridge is gone.
func (n Network) RemoveRules(ctx context.Context) error {
	var errs []error
	if nft, err := n.nft(); err == nil {
		tx := nft.NewTransaction()
		// Add first: deleting a missing table is an error, and older versions of nft have no command "destroy".
		tx.Add(&knftables.Table{})
		tx.Delete(&knftables.Table{})
		errs = append(errs, nft.Run(ctx, tx))
	}
	if _, err := lookProgram("iptables"); err == nil {
		for _, r := range n.iptables(ctx) {
			err := r.remove(ctx)
			if err != nil && ctx.Err() == nil && try(ctx, r.program, "-w", "-t", r.table, "-S", r.chain) != nil {
				continue // The program doesn't work on this host, so it has created no rules.
			}
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the pod network's masquerading and guard: %w", err)
	}
	return nil
}

// iptablesRule is one rule of the network if nftables can't be used.
type iptablesRule struct {
	program, table, chain string
	// op is -A, or -I for a rule that has to precede other programs' rules in the chain.
	op   string
	rule []string
	// later is a rule that has to follow this one, if any.
	later []string
}

func (r iptablesRule) command(op string) []string {
	return append([]string{"-w", "-t", r.table, op, r.chain}, r.rule...)
}

// there reports whether the chain has the rule. Only exit status 1 of the program means that the rule is missing.
// Other statuses are due to a lock, memory or a kernel module; treating the rule as missing would then create it
// twice.
func (r iptablesRule) there(ctx context.Context) (bool, error) {
	err := try(ctx, r.program, r.command("-C")...)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() == 1 {
		return false, nil
	}
	return err == nil, err
}

// mostCopies bounds how many copies of a rule are deleted.
const mostCopies = 100

// remove deletes the rule and all its copies.
func (r iptablesRule) remove(ctx context.Context) error {
	for range mostCopies {
		if there, err := r.there(ctx); !there {
			return err
		}
		if err := try(ctx, r.program, r.command("-D")...); err != nil {
			return err
		}
	}
	return fmt.Errorf("%s %s: there are more than %d copies", r.program, strings.Join(r.command("-D"), " "), mostCopies)
}

// iptables returns the network's rules in the order of their creation; they can be deleted in any order.
func (n Network) iptables(ctx context.Context) []iptablesRule {
	comment := []string{"-m", "comment", "--comment", n.table()}
	var rules []iptablesRule
	for _, l := range loopback {
		if l.iptables != "iptables" && try(ctx, l.iptables, "-w", "-t", "raw", "-S", "PREROUTING") != nil {
			continue // No IPv6, or ip6tables doesn't work: then the kernel's own check applies.
		}
		for _, match := range []string{"-s", "-d"} {
			rules = append(rules, iptablesRule{program: l.iptables, table: "raw", chain: "PREROUTING", op: "-I",
				rule: append(slices.Clone(comment), "-i", n.Bridge, match, l.prefix, "-j", "DROP")})
		}
	}
	for _, p := range n.Prefixes {
		program := "iptables"
		if !p.Addr().Is4() {
			program = "ip6tables"
		}
		_, mc := multicast(p)
		within := iptablesRule{program: program, table: "nat", chain: "POSTROUTING", op: "-A",
			rule: append(slices.Clone(comment), "-s", p.String(), "-d", p.String(), "-j", "RETURN")}
		beyond := within
		beyond.rule = append(slices.Clone(comment), "-s", p.String(), "!", "-d", mc, "-j", "MASQUERADE")
		within.later = beyond.rule
		rules = append(rules, within, beyond)
	}
	return rules
}

func (n Network) ensureIPTables(ctx context.Context) error {
	for _, r := range n.iptables(ctx) {
		there, err := r.there(ctx)
		if err != nil {
			return err
		}
		if there {
			continue
		}
		if r.later != nil { // recreated after this one
			later := r
			later.rule = r.later
			if err := later.remove(ctx); err != nil {
				return err
			}
		}
		if err := try(ctx, r.program, r.command(r.op)...); err != nil {
			return err
		}
	}
	return nil
}

// rules returns a string that changes with the network's rules: an equal string means that they are unchanged. It
// is empty if rules are missing for certain.
func (n Network) rules(ctx context.Context, backend Backend) (string, error) {
	if backend == IPTables {
		for _, r := range n.iptables(ctx) {
			if there, err := r.there(ctx); !there {
				return "", err
			}
		}
		return "there", nil
	}
	return listTable(ctx, "inet", n.table())
}

// listTable returns nft's listing of a table, empty if the table doesn't exist.
func listTable(ctx context.Context, family, name string) (string, error) {
	listing, err := output(ctx, "nft", "list", "table", family, name)
	if err != nil && strings.Contains(err.Error(), "No such file or directory") {
		return "", nil
	}
	return string(listing), err
}

// ForwardDropped reports whether the host's firewall drops forwarded packets by default, as Docker configures it;
// then pods reach only each other and the host.
func ForwardDropped(ctx context.Context) bool {
	rules, err := output(ctx, "iptables", "-w", "-S", "FORWARD")
	return err == nil && bytes.HasPrefix(rules, []byte("-P FORWARD DROP"))
}
