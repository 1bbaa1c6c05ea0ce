package translate

import (
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// safeSysctls are those that a pod can set without harm to the node or other pods
// (https://kubernetes.io/docs/tasks/administer-cluster/sysctl-cluster/#safe-and-unsafe-sysctls).
// All others need the node's leave (KubeletConfiguration allowedUnsafeSysctls),
// which this build doesn't give.
var safeSysctls = []string{
	"kernel.shm_rmid_forced",
	"net.ipv4.ip_local_port_range",
	"net.ipv4.ip_local_reserved_ports",
	"net.ipv4.ip_unprivileged_port_start",
	"net.ipv4.ping_group_range",
	"net.ipv4.tcp_fin_timeout",
	"net.ipv4.tcp_keepalive_intvl",
	"net.ipv4.tcp_keepalive_probes",
	"net.ipv4.tcp_keepalive_time",
	"net.ipv4.tcp_rmem",
	"net.ipv4.tcp_syncookies",
	"net.ipv4.tcp_wmem",
}

// sysctls are the pod's, by their names with dots. It fails for those that would
// reach beyond the pod.
func sysctls(p *v1.Pod) (map[string]string, error) {
	sc := p.Spec.SecurityContext
	if sc == nil || len(sc.Sysctls) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(sc.Sysctls))
	for _, s := range sc.Sysctls {
		name := strings.ReplaceAll(s.Name, "/", ".")
		switch {
		case !slices.Contains(safeSysctls, name):
			return nil, fmt.Errorf("pod %s/%s: sysctl %q is forbidden: this build allows only the safe ones, which concern nothing but the pod", p.Namespace, p.Name, s.Name)
		case p.Spec.HostNetwork && strings.HasPrefix(name, "net."):
			return nil, fmt.Errorf("pod %s/%s: sysctl %q is forbidden with hostNetwork: it would be the node's", p.Namespace, p.Name, s.Name)
		case p.Spec.HostIPC && strings.HasPrefix(name, "kernel."):
			return nil, fmt.Errorf("pod %s/%s: sysctl %q is forbidden with hostIPC: it would be the node's", p.Namespace, p.Name, s.Name)
		}
		out[name] = s.Value
	}
	return out, nil
}
