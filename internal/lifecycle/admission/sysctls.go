package admission

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/component-helpers/node/util/sysctl"
)

// safe are the sysctls that a pod can set without harm to the node or to other pods
// (https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/). The value is the first kernel version in which
// the sysctl is namespaced; empty if it is namespaced in every version.
var safe = map[string]string{
	"kernel.shm_rmid_forced":              "",
	"net.ipv4.ip_local_port_range":        "",
	"net.ipv4.ip_local_reserved_ports":    "3.16",
	"net.ipv4.ip_unprivileged_port_start": "",
	"net.ipv4.ping_group_range":           "",
	"net.ipv4.tcp_fin_timeout":            "4.6",
	"net.ipv4.tcp_keepalive_intvl":        "4.5",
	"net.ipv4.tcp_keepalive_probes":       "4.5",
	"net.ipv4.tcp_keepalive_time":         "4.5",
	"net.ipv4.tcp_rmem":                   "4.15",
	"net.ipv4.tcp_syncookies":             "4.6",
	"net.ipv4.tcp_wmem":                   "4.15",
}

// nodeWide are sysctls that can be set from within a network namespace but apply to the whole node.
var nodeWide = []string{"net.netfilter.nf_conntrack_max", "net.netfilter.nf_conntrack_expect_max"}

// namespace is the kind of namespace that a sysctl belongs to.
type namespace string

const (
	none    namespace = ""
	network namespace = "network"
	ipc     namespace = "IPC"
)

// namespaceOf returns the kind of namespace that a sysctl belongs to, according to the list of namespaced sysctls in
// the Kubernetes documentation.
func namespaceOf(name string) namespace {
	switch {
	case slices.Contains(nodeWide, name):
		return none
	case strings.HasPrefix(name, "net."):
		return network
	case name == "kernel.sem", strings.HasPrefix(name, "kernel.shm"), strings.HasPrefix(name, "kernel.msg"),
		strings.HasPrefix(name, "fs.mqueue."):
		return ipc
	}
	return none
}

// forbiddenSysctl names a sysctl that the pod asks for but may not set, and why; empty if there is none.
func (n *Node) forbiddenSysctl(p *v1.Pod) string {
	sc := p.Spec.SecurityContext
	if sc == nil {
		return ""
	}
	for _, s := range sc.Sysctls {
		if why := n.forbids(p, sysctl.NormalizeName(s.Name)); why != "" {
			return fmt.Sprintf("forbidden sysctl: %q %s", s.Name, why)
		}
	}
	return ""
}

// forbids returns why the pod may not set the sysctl; empty if it may.
func (n *Node) forbids(p *v1.Pod, name string) string {
	ns := namespaceOf(name)
	switch {
	case ns == none:
		return "is the node's: no pod can have a value of its own"
	case !n.isSafe(name) && !n.isAllowed(name):
		return "not allowlisted: it is unsafe, and not among this node's allowedUnsafeSysctls"
	case ns == network && p.Spec.HostNetwork:
		return "not allowed with host net enabled: it would be the node's"
	case ns == ipc && p.Spec.HostIPC:
		return "not allowed with host ipc enabled: it would be the node's"
	}
	return ""
}

func (n *Node) isSafe(name string) bool {
	since, ok := safe[name]
	if !ok || since == "" || n.Kernel == "" {
		return ok
	}
	kernel, err := version.ParseGeneric(n.Kernel)
	return err == nil && kernel.AtLeast(version.MustParseGeneric(since))
}

func (n *Node) isAllowed(name string) bool {
	return slices.ContainsFunc(n.UnsafeSysctls, func(pattern string) bool {
		pattern = sysctl.NormalizeName(pattern)
		if beginning, ok := strings.CutSuffix(pattern, "*"); ok {
			return strings.HasPrefix(name, beginning)
		}
		return name == pattern
	})
}
