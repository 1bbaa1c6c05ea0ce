package translate_test

import "testing"

func TestPodSecurityContextFields(t *testing.T) { play(t, podSecurityFields, podSecurity) }

var podSecurityFields = []row{
	{covers: "PodSecurityContext.SELinuxOptions", yaml: `seLinuxOptions: {level: l}`, want: `
		+ sandbox.linux.security_context.selinux_options.level: l
		+ sandbox.linux.security_context.selinux_options.role:
		+ sandbox.linux.security_context.selinux_options.type:
		+ sandbox.linux.security_context.selinux_options.user:
		+ container.linux.security_context.selinux_options.level: l
		+ container.linux.security_context.selinux_options.role:
		+ container.linux.security_context.selinux_options.type:
		+ container.linux.security_context.selinux_options.user:`},
	{covers: "PodSecurityContext.WindowsOptions", yaml: `windowsOptions: {runAsUserName: a}`, by: "internal/runtime/translate"},
	{covers: "PodSecurityContext.RunAsUser", yaml: `runAsUser: 5`, want: `
		+ sandbox.linux.security_context.run_as_user.value: 5
		+ container.linux.security_context.run_as_user.value: 5`},
	{covers: "PodSecurityContext.RunAsGroup", yaml: `{runAsUser: 5, runAsGroup: 6}`, want: `
		+ sandbox.linux.security_context.run_as_group.value: 6
		+ sandbox.linux.security_context.run_as_user.value: 5
		+ container.linux.security_context.run_as_group.value: 6
		+ container.linux.security_context.run_as_user.value: 5`},
	{covers: "PodSecurityContext.RunAsGroup", yaml: `runAsGroup: 6`, with: asNumber(33), want: `
		+ container.linux.security_context.run_as_group.value: 6
		+ container.linux.security_context.run_as_user.value: 33`},
	{covers: "PodSecurityContext.RunAsNonRoot", yaml: `runAsNonRoot: true`, with: asNumber(5)},
	{covers: "PodSecurityContext.RunAsNonRoot", yaml: `runAsNonRoot: true`, with: as(nil), err: "the image runs as root"},
	{covers: "PodSecurityContext.SupplementalGroups", yaml: `supplementalGroups: [3, 4]`, want: `
		+ sandbox.linux.security_context.supplemental_groups[0]: 3
		+ sandbox.linux.security_context.supplemental_groups[1]: 4
		+ container.linux.security_context.supplemental_groups[0]: 3
		+ container.linux.security_context.supplemental_groups[1]: 4`},
	{covers: "PodSecurityContext.SupplementalGroups", yaml: `supplementalGroups: [3, 65536]`, spec: `hostUsers: false`, with: withUsers, err: "group 65536 doesn't exist"},
	{covers: "PodSecurityContext.SupplementalGroupsPolicy", yaml: `supplementalGroupsPolicy: Strict`, want: `
		- sandbox.linux.security_context.supplemental_groups_policy: Merge
		- container.linux.security_context.supplemental_groups_policy: Merge
		+ sandbox.linux.security_context.supplemental_groups_policy: Strict
		+ container.linux.security_context.supplemental_groups_policy: Strict`},
	{covers: "PodSecurityContext.SupplementalGroupsPolicy", yaml: `supplementalGroupsPolicy: Merge`},
	{covers: "PodSecurityContext.FSGroup", yaml: `{fsGroup: 9, supplementalGroups: [3]}`, by: "internal/volume", want: `
		+ sandbox.linux.security_context.supplemental_groups[0]: 9
		+ sandbox.linux.security_context.supplemental_groups[1]: 3
		+ container.linux.security_context.supplemental_groups[0]: 9
		+ container.linux.security_context.supplemental_groups[1]: 3`},
	{covers: "PodSecurityContext.Sysctls Sysctl.Name Sysctl.Value", yaml: `
sysctls:
- {name: net/ipv4/tcp_syncookies, value: "0"}
- {name: net.core.somaxconn, value: "1024"}`, want: `
		- sandbox.linux.sysctls: {}
		+ sandbox.linux.sysctls.[net.core.somaxconn]: 1024
		+ sandbox.linux.sysctls.[net.ipv4.tcp_syncookies]: 0`},
	{covers: "PodSecurityContext.FSGroupChangePolicy", yaml: `fsGroupChangePolicy: OnRootMismatch`, by: "internal/volume"},
	{covers: "PodSecurityContext.SeccompProfile", yaml: `seccompProfile: {type: RuntimeDefault}`, want: `
		- container.linux.security_context.seccomp.profile_type: Unconfined
		+ container.linux.security_context.seccomp.profile_type: RuntimeDefault`},
	{covers: "PodSecurityContext.AppArmorProfile", yaml: `appArmorProfile: {type: Localhost, localhostProfile: k8s-nginx}`, want: `
		+ container.linux.security_context.apparmor.localhost_ref: k8s-nginx
		+ container.linux.security_context.apparmor.profile_type: Localhost`},
	// It is about volumes that mount with a label of their own; no such kind is mounted yet.
	{covers: "PodSecurityContext.SELinuxChangePolicy", yaml: `seLinuxChangePolicy: Recursive`, by: "internal/volume"},
	{covers: "PodSecurityContext", spec: `hostUsers: true`},
	{covers: "PodSecurityContext", spec: `hostUsers: false`, err: "the pod has no range of user IDs"},
	{covers: "PodSecurityContext", spec: `{hostPID: true, hostIPC: true, hostNetwork: true}`, want: `
		- sandbox.hostname: web
		- sandbox.linux.security_context.namespace_options.ipc: POD
		- sandbox.linux.security_context.namespace_options.network: POD
		- sandbox.linux.security_context.namespace_options.pid: CONTAINER
		- container.linux.security_context.namespace_options.ipc: POD
		- container.linux.security_context.namespace_options.network: POD
		- container.linux.security_context.namespace_options.pid: CONTAINER
		+ sandbox.hostname:
		+ sandbox.linux.security_context.namespace_options.ipc: NODE
		+ sandbox.linux.security_context.namespace_options.network: NODE
		+ sandbox.linux.security_context.namespace_options.pid: NODE
		+ container.linux.security_context.namespace_options.ipc: NODE
		+ container.linux.security_context.namespace_options.network: NODE
		+ container.linux.security_context.namespace_options.pid: NODE`},
	{covers: "PodSecurityContext", spec: `shareProcessNamespace: true`, want: `
		- sandbox.linux.security_context.namespace_options.pid: CONTAINER
		- container.linux.security_context.namespace_options.pid: CONTAINER
		+ sandbox.linux.security_context.namespace_options.pid: POD
		+ container.linux.security_context.namespace_options.pid: POD`},
}
