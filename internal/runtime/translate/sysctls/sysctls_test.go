package sysctls_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/sysctls"
)

func with(names ...string) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{}}}
	for _, name := range names {
		p.Spec.SecurityContext.Sysctls = append(p.Spec.SecurityContext.Sysctls, v1.Sysctl{Name: name, Value: "1"})
	}
	return p
}

func hostNetwork(p *v1.Pod) *v1.Pod { p.Spec.HostNetwork = true; return p }
func hostIPC(p *v1.Pod) *v1.Pod     { p.Spec.HostIPC = true; return p }

func TestCheck(t *testing.T) {
	for _, tc := range []struct {
		name   string
		policy sysctls.Policy
		pod    *v1.Pod
		want   string
	}{
		{"none", sysctls.Policy{}, &v1.Pod{}, ""},
		{"safe", sysctls.Policy{}, with("net.ipv4.tcp_syncookies", "kernel/shm_rmid_forced"), ""},
		{"unsafe", sysctls.Policy{}, with("net.ipv4.tcp_syncookies", "net.core.somaxconn"), `forbidden sysctl: "net.core.somaxconn" not allowlisted`},
		{"allowed", sysctls.Policy{Unsafe: []string{"net.core.somaxconn"}}, with("net/core/somaxconn"), ""},
		{"allowed with slashes", sysctls.Policy{Unsafe: []string{"net/core/*"}}, with("net.core.somaxconn"), ""},
		{"beginning", sysctls.Policy{Unsafe: []string{"kernel.msg*", "kernel.shm*"}}, with("kernel.msgmax", "kernel.shm_next_id"), ""},
		{"only a beginning that ends in *", sysctls.Policy{Unsafe: []string{"kernel.msg"}}, with("kernel.msgmax"), "not allowlisted"},
		{"interface with a dot", sysctls.Policy{Unsafe: []string{"net.ipv4.conf.eno2/100.rp_filter"}}, with("net/ipv4/conf/eno2.100/rp_filter"), ""},
		{"the node's", sysctls.Policy{Unsafe: []string{"*"}}, with("kernel.core_pattern"), "is the node's"},
		{"the node's in disguise", sysctls.Policy{Unsafe: []string{"net.*"}}, with("net.netfilter.nf_conntrack_max"), "is the node's"},
		{"vm", sysctls.Policy{Unsafe: []string{"vm.*"}}, with("vm.swappiness"), "is the node's"},
		{"host network", sysctls.Policy{}, hostNetwork(with("net.ipv4.tcp_syncookies")), "host net"},
		{"host network, IPC's", sysctls.Policy{}, hostNetwork(with("kernel.shm_rmid_forced")), ""},
		{"host IPC", sysctls.Policy{}, hostIPC(with("kernel/shm_rmid_forced")), "host ipc"},
		{"host IPC, queues", sysctls.Policy{Unsafe: []string{"fs.mqueue.*"}}, hostIPC(with("fs.mqueue.msg_max")), "host ipc"},
		{"host IPC, semaphores", sysctls.Policy{Unsafe: []string{"kernel.sem"}}, hostIPC(with("kernel.sem")), "host ipc"},
		{"host IPC, network's", sysctls.Policy{}, hostIPC(with("net.ipv4.tcp_syncookies")), ""},
		{"old kernel", sysctls.Policy{Kernel: "4.14.1-amd64"}, with("net.ipv4.tcp_rmem"), "not allowlisted"},
		{"old kernel, older sysctl", sysctls.Policy{Kernel: "4.14.1-amd64"}, with("net.ipv4.tcp_fin_timeout", "net.ipv4.ping_group_range"), ""},
		{"old kernel, admin knows better", sysctls.Policy{Kernel: "4.14", Unsafe: []string{"net.ipv4.tcp_rmem"}}, with("net.ipv4.tcp_rmem"), ""},
		{"new kernel", sysctls.Policy{Kernel: "6.18.44-fc-v595"}, with("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"), ""},
		{"odd kernel", sysctls.Policy{Kernel: "odd"}, with("net.ipv4.tcp_rmem"), "not allowlisted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.policy.Check(tc.pod)
			if tc.want == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var f *pod.Failure
			if !errors.As(err, &f) || f.Reason != "SysctlForbidden" || !f.Rejected || !strings.Contains(f.Message, tc.want) {
				t.Errorf("unexpected error: %v", err)
			}
		})
	}
}

func TestOf(t *testing.T) {
	if got := sysctls.Of(&v1.Pod{}); got != nil {
		t.Errorf("none: %v", got)
	}
	want := map[string]string{"net.ipv4.conf.eno2/100.rp_filter": "1", "kernel.sem": "1"}
	if got := sysctls.Of(with("net/ipv4/conf/eno2.100/rp_filter", "kernel.sem")); !maps.Equal(got, want) {
		t.Errorf("have %v", got)
	}
}
