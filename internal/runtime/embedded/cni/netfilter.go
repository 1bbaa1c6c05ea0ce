package cni

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"strings"

	"sigs.k8s.io/knftables"
)

// Backend is the program that makes netfilter rules; the value is the portmap
// plugin's name for it.
type Backend string

const (
	NFTables Backend = "nftables"
	IPTables Backend = "iptables"
)

// Detect finds a program that works on this host, nft before iptables.
func Detect(ctx context.Context) (Backend, error) {
	// Some kernels have nf_tables without the inet family, which the rule here is in.
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

// lookProgram also looks where a user's PATH often doesn't.
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

// multicast traffic keeps its source address.
func multicast(p netip.Prefix) (family, prefix string) {
	if p.Addr().Is4() {
		return "ip", "224.0.0.0/4"
	}
	return "ip6", "ff00::/8"
}

// Masquerade gives what pods send beyond the pod network the host's address.
func (n Network) Masquerade(ctx context.Context, backend Backend) error {
	var err error
	if backend == IPTables {
		err = n.iptables(ctx, "-A")
	} else {
		err = n.masqueradeNFT(ctx)
	}
	if err != nil {
		return fmt.Errorf("masquerade the pod network: %w", err)
	}
	return nil
}

func (n Network) masqueradeNFT(ctx context.Context) error {
	nft, err := n.nft()
	if err != nil {
		return err
	}
	const chain = "postrouting"
	tx := nft.NewTransaction()
	tx.Add(&knftables.Table{Comment: knftables.PtrTo("deckhand's pod network on " + n.Bridge)})
	tx.Add(&knftables.Chain{
		Name:     chain,
		Type:     knftables.PtrTo(knftables.NATType),
		Hook:     knftables.PtrTo(knftables.PostroutingHook),
		Priority: knftables.PtrTo(knftables.SNATPriority),
	})
	tx.Flush(&knftables.Chain{Name: chain})
	for _, p := range n.Prefixes {
		family, mc := multicast(p)
		tx.Add(&knftables.Rule{Chain: chain, Rule: knftables.Concat(
			family, "saddr", p, family, "daddr != {", p, ",", mc, "} masquerade")})
	}
	return nft.Run(ctx, tx)
}

// Unmasquerade takes the rule away again, whichever program made it.
func (n Network) Unmasquerade(ctx context.Context) error {
	var errs []error
	if nft, err := n.nft(); err == nil {
		tx := nft.NewTransaction()
		// Add first: deleting what isn't there is an error, and "destroy" is too new.
		tx.Add(&knftables.Table{})
		tx.Delete(&knftables.Table{})
		errs = append(errs, nft.Run(ctx, tx))
	}
	if _, err := lookProgram("iptables"); err == nil {
		errs = append(errs, n.iptables(ctx, "-D"))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove the pod network's masquerading: %w", err)
	}
	return nil
}

// iptables appends (-A) the rules that are missing or deletes (-D) those that are there.
func (n Network) iptables(ctx context.Context, op string) error {
	for _, p := range n.Prefixes {
		program := "iptables"
		if !p.Addr().Is4() {
			program = "ip6tables"
		}
		_, mc := multicast(p)
		comment := []string{"-m", "comment", "--comment", n.table()}
		// Appended in this order, deleted in any.
		rules := [][]string{
			{"-s", p.String(), "-d", p.String(), "-j", "RETURN"},
			{"-s", p.String(), "!", "-d", mc, "-j", "MASQUERADE"},
		}
		for _, rule := range rules {
			rule = append(append([]string{"POSTROUTING"}, comment...), rule...)
			there := try(ctx, program, append([]string{"-w", "-t", "nat", "-C"}, rule...)...) == nil
			if there == (op == "-A") {
				continue
			}
			if err := try(ctx, program, append([]string{"-w", "-t", "nat", op}, rule...)...); err != nil {
				return err
			}
		}
	}
	return nil
}

// ForwardDropped says whether the host's firewall drops what it forwards by
// default, as Docker sets it up; pods then reach nothing but each other and the host.
func ForwardDropped(ctx context.Context) bool {
	rules, err := output(ctx, "iptables", "-w", "-S", "FORWARD")
	return err == nil && bytes.HasPrefix(rules, []byte("-P FORWARD DROP"))
}
