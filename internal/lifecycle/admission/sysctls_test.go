package admission_test

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
)

func withSysctls(names ...string) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{SecurityContext: &v1.PodSecurityContext{}}}
	for _, name := range names {
		p.Spec.SecurityContext.Sysctls = append(p.Spec.SecurityContext.Sysctls, v1.Sysctl{Name: name, Value: "1"})
	}
	return p
}

func hostNetwork(p *v1.Pod) *v1.Pod { p.Spec.HostNetwork = true; return p }
func hostIPC(p *v1.Pod) *v1.Pod     { p.Spec.HostIPC = true; return p }

func TestSysctls(t *testing.T) {
	for _, tc := range []struct {
		name string
		node admission.Node
		pod  *v1.Pod
		want string
	}{
		{"none", admission.Node{}, &v1.Pod{}, ""},
		{"safe", admission.Node{}, withSysctls("net.ipv4.tcp_syncookies", "kernel/shm_rmid_forced"), ""},
		{"unsafe", admission.Node{}, withSysctls("net.ipv4.tcp_syncookies", "net.core.somaxconn"), `forbidden sysctl: "net.core.somaxconn" not allowlisted`},
		{"allowed", admission.Node{UnsafeSysctls: []string{"net.core.somaxconn"}}, withSysctls("net/core/somaxconn"), ""},
		{"allowed with slashes", admission.Node{UnsafeSysctls: []string{"net/core/*"}}, withSysctls("net.core.somaxconn"), ""},
		{"beginning", admission.Node{UnsafeSysctls: []string{"kernel.msg*", "kernel.shm*"}}, withSysctls("kernel.msgmax", "kernel.shm_next_id"), ""},
		{"only a beginning that ends in *", admission.Node{UnsafeSysctls: []string{"kernel.msg"}}, withSysctls("kernel.msgmax"), "not allowlisted"},
		{"interface with a dot", admission.Node{UnsafeSysctls: []string{"net.ipv4.conf.eno2/100.rp_filter"}}, withSysctls("net/ipv4/conf/eno2.100/rp_filter"), ""},
		{"the node's", admission.Node{UnsafeSysctls: []string{"*"}}, withSysctls("kernel.core_pattern"), "is the node's"},
		{"the node's in disguise", admission.Node{UnsafeSysctls: []string{"net.*"}}, withSysctls("net.netfilter.nf_conntrack_max"), "is the node's"},
		{"vm", admission.Node{UnsafeSysctls: []string{"vm.*"}}, withSysctls("vm.swappiness"), "is the node's"},
		{"host network", admission.Node{}, hostNetwork(withSysctls("net.ipv4.tcp_syncookies")), "host net"},
		{"host network, IPC's", admission.Node{}, hostNetwork(withSysctls("kernel.shm_rmid_forced")), ""},
		{"host IPC", admission.Node{}, hostIPC(withSysctls("kernel/shm_rmid_forced")), "host ipc"},
		{"host IPC, queues", admission.Node{UnsafeSysctls: []string{"fs.mqueue.*"}}, hostIPC(withSysctls("fs.mqueue.msg_max")), "host ipc"},
		{"host IPC, semaphores", admission.Node{UnsafeSysctls: []string{"kernel.sem"}}, hostIPC(withSysctls("kernel.sem")), "host ipc"},
		{"host IPC, network's", admission.Node{}, hostIPC(withSysctls("net.ipv4.tcp_syncookies")), ""},
		{"old kernel", admission.Node{Kernel: "4.14.1-amd64"}, withSysctls("net.ipv4.tcp_rmem"), "not allowlisted"},
		{"old kernel, older sysctl", admission.Node{Kernel: "4.14.1-amd64"}, withSysctls("net.ipv4.tcp_fin_timeout", "net.ipv4.ping_group_range"), ""},
		{"old kernel, admin knows better", admission.Node{Kernel: "4.14", UnsafeSysctls: []string{"net.ipv4.tcp_rmem"}}, withSysctls("net.ipv4.tcp_rmem"), ""},
		{"new kernel", admission.Node{Kernel: "6.18.44-fc-v595"}, withSysctls("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"), ""},
		{"odd kernel", admission.Node{Kernel: "odd"}, withSysctls("net.ipv4.tcp_rmem"), "not allowlisted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := admission.NewJudge(&tc.node, nil).Admit(tc.pod, nil).Failure
			if tc.want == "" {
				if f != nil {
					t.Error(f)
				}
				return
			}
			if f == nil || f.Reason != "SysctlForbidden" || !f.Rejected || !strings.Contains(f.Message, tc.want) {
				t.Errorf("unexpected answer: %v", f)
			}
		})
	}
}
