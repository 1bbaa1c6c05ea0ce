package translate_test

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

func TestSecurityContextFields(t *testing.T) { play(t, securityFields, ownSecurity) }

// as says who the image runs as.
func as(img *runtimeapi.Image) func(*translate.Settings, *translate.ContainerInput) {
	return func(_ *translate.Settings, in *translate.ContainerInput) { in.ImageUser = translate.ImageUserOf(img) }
}

func asNumber(uid int64) func(*translate.Settings, *translate.ContainerInput) {
	return as(&runtimeapi.Image{Uid: &runtimeapi.Int64Value{Value: uid}})
}

func confinedByDefault(s *translate.Settings, _ *translate.ContainerInput) { s.SeccompDefault = true }

var securityFields = []row{
	{covers: "SecurityContext.Capabilities Capabilities.Add", yaml: `capabilities: {add: [NET_ADMIN, CAP_SYS_TIME]}`, want: `
		+ container.linux.security_context.capabilities.add_capabilities[0]: NET_ADMIN
		+ container.linux.security_context.capabilities.add_capabilities[1]: SYS_TIME`},
	{covers: "Capabilities.Drop", yaml: `capabilities: {add: [CHOWN], drop: [all]}`, want: `
		+ container.linux.security_context.capabilities.add_capabilities[0]: CHOWN
		+ container.linux.security_context.capabilities.drop_capabilities[0]: ALL`},
	{covers: "SecurityContext.Privileged", yaml: `{privileged: true, seccompProfile: {type: RuntimeDefault}}`, want: `
		- sandbox.linux.security_context.privileged: false
		- container.linux.security_context.privileged: false
		+ sandbox.linux.security_context.privileged: true
		+ container.linux.security_context.privileged: true`},
	{covers: "SecurityContext.SELinuxOptions SELinuxOptions.User SELinuxOptions.Role SELinuxOptions.Type SELinuxOptions.Level",
		yaml: `seLinuxOptions: {user: u, role: r, type: t, level: l}`, want: `
		+ container.linux.security_context.selinux_options.level: l
		+ container.linux.security_context.selinux_options.role: r
		+ container.linux.security_context.selinux_options.type: t
		+ container.linux.security_context.selinux_options.user: u`},
	{covers: "SecurityContext.SELinuxOptions", yaml: `seLinuxOptions: {level: own}`, spec: `securityContext: {seLinuxOptions: {level: pods, type: pods}}`, want: `
		+ sandbox.linux.security_context.selinux_options.level: pods
		+ sandbox.linux.security_context.selinux_options.role:
		+ sandbox.linux.security_context.selinux_options.type: pods
		+ sandbox.linux.security_context.selinux_options.user:
		+ container.linux.security_context.selinux_options.level: own
		+ container.linux.security_context.selinux_options.role:
		+ container.linux.security_context.selinux_options.type:
		+ container.linux.security_context.selinux_options.user:`},
	{covers: "SecurityContext.WindowsOptions WindowsSecurityContextOptions.GMSACredentialSpecName WindowsSecurityContextOptions.GMSACredentialSpec WindowsSecurityContextOptions.RunAsUserName WindowsSecurityContextOptions.HostProcess",
		yaml: `windowsOptions: {gmsaCredentialSpecName: a, gmsaCredentialSpec: b, runAsUserName: c, hostProcess: true}`, by: "internal/runtime/translate"},
	{covers: "SecurityContext.RunAsUser", yaml: `runAsUser: 5`, want: `
		+ container.linux.security_context.run_as_user.value: 5`},
	{covers: "SecurityContext.RunAsUser", yaml: `runAsUser: 0`, spec: `securityContext: {runAsUser: 7}`, want: `
		+ sandbox.linux.security_context.run_as_user.value: 7
		+ container.linux.security_context.run_as_user.value: 0`},
	{covers: "SecurityContext.RunAsUser", yaml: `runAsUser: 70000`, spec: `hostUsers: false`, with: withUsers, err: "group 70000 doesn't exist in the pod's user namespace"},
	{covers: "SecurityContext.RunAsGroup", yaml: `{runAsUser: 5, runAsGroup: 6}`, want: `
		+ container.linux.security_context.run_as_group.value: 6
		+ container.linux.security_context.run_as_user.value: 5`},
	{covers: "SecurityContext.RunAsGroup", yaml: `runAsGroup: 6`, with: asNumber(33), want: `
		+ container.linux.security_context.run_as_group.value: 6
		+ container.linux.security_context.run_as_user.value: 33`},
	{covers: "SecurityContext.RunAsGroup", yaml: `runAsGroup: 6`, with: as(&runtimeapi.Image{Username: "www"}), want: `
		- container.linux.security_context.run_as_username:
		+ container.linux.security_context.run_as_group.value: 6
		+ container.linux.security_context.run_as_username: www`},
	{covers: "SecurityContext.RunAsGroup", yaml: `runAsGroup: 6`, with: as(nil), want: `
		+ container.linux.security_context.run_as_group.value: 6
		+ container.linux.security_context.run_as_user.value: 0`},
	{covers: "SecurityContext.RunAsNonRoot", yaml: `runAsNonRoot: true`, with: asNumber(5)},
	{covers: "SecurityContext.RunAsNonRoot", yaml: `runAsNonRoot: true`, with: asNumber(0), err: "the image runs as root"},
	{covers: "SecurityContext.RunAsNonRoot", yaml: `runAsNonRoot: true`, with: as(nil), err: "but the image runs as root"},
	{covers: "SecurityContext.RunAsNonRoot", yaml: `runAsNonRoot: true`, with: as(&runtimeapi.Image{Username: "www"}), err: `names its user "www"`},
	{covers: "SecurityContext.RunAsNonRoot", yaml: `{runAsNonRoot: true, runAsUser: 0}`, err: "runAsUser is 0"},
	{covers: "SecurityContext.RunAsNonRoot", yaml: `runAsNonRoot: false`, spec: `securityContext: {runAsNonRoot: true}`, with: as(nil)},
	{covers: "SecurityContext.ReadOnlyRootFilesystem", yaml: `readOnlyRootFilesystem: true`, want: `
		- container.linux.security_context.readonly_rootfs: false
		+ container.linux.security_context.readonly_rootfs: true`},
	{covers: "SecurityContext.AllowPrivilegeEscalation", yaml: `allowPrivilegeEscalation: false`, want: `
		- container.linux.security_context.no_new_privs: false
		+ container.linux.security_context.no_new_privs: true`},
	{covers: "SecurityContext.AllowPrivilegeEscalation", yaml: `allowPrivilegeEscalation: true`},
	{covers: "SecurityContext.ProcMount", yaml: `procMount: Default`},
	{covers: "SecurityContext.ProcMount", yaml: `procMount: Unmasked`, err: "set hostUsers to false"},
	{covers: "SecurityContext.ProcMount", yaml: `procMount: Unmasked`, spec: `hostUsers: false`, with: withUsers, want: `
		- sandbox.linux.security_context.namespace_options.userns_options.mode: NODE
		- container.linux.security_context.masked_paths[0]: /proc/asound
		- container.linux.security_context.masked_paths[10]: /sys/firmware
		- container.linux.security_context.masked_paths[11]: /sys/devices/virtual/powercap
		- container.linux.security_context.masked_paths[1]: /proc/acpi
		- container.linux.security_context.masked_paths[2]: /proc/interrupts
		- container.linux.security_context.masked_paths[3]: /proc/kcore
		- container.linux.security_context.masked_paths[4]: /proc/keys
		- container.linux.security_context.masked_paths[5]: /proc/latency_stats
		- container.linux.security_context.masked_paths[6]: /proc/timer_list
		- container.linux.security_context.masked_paths[7]: /proc/timer_stats
		- container.linux.security_context.masked_paths[8]: /proc/sched_debug
		- container.linux.security_context.masked_paths[9]: /proc/scsi
		- container.linux.security_context.namespace_options.userns_options.mode: NODE
		- container.linux.security_context.readonly_paths[0]: /proc/bus
		- container.linux.security_context.readonly_paths[1]: /proc/fs
		- container.linux.security_context.readonly_paths[2]: /proc/irq
		- container.linux.security_context.readonly_paths[3]: /proc/sys
		- container.linux.security_context.readonly_paths[4]: /proc/sysrq-trigger
		+ sandbox.linux.security_context.namespace_options.userns_options.gids[0].container_id: 0
		+ sandbox.linux.security_context.namespace_options.userns_options.gids[0].host_id: 131072
		+ sandbox.linux.security_context.namespace_options.userns_options.gids[0].length: 65536
		+ sandbox.linux.security_context.namespace_options.userns_options.mode: POD
		+ sandbox.linux.security_context.namespace_options.userns_options.uids[0].container_id: 0
		+ sandbox.linux.security_context.namespace_options.userns_options.uids[0].host_id: 131072
		+ sandbox.linux.security_context.namespace_options.userns_options.uids[0].length: 65536
		+ container.linux.security_context.namespace_options.userns_options.gids[0].container_id: 0
		+ container.linux.security_context.namespace_options.userns_options.gids[0].host_id: 131072
		+ container.linux.security_context.namespace_options.userns_options.gids[0].length: 65536
		+ container.linux.security_context.namespace_options.userns_options.mode: POD
		+ container.linux.security_context.namespace_options.userns_options.uids[0].container_id: 0
		+ container.linux.security_context.namespace_options.userns_options.uids[0].host_id: 131072
		+ container.linux.security_context.namespace_options.userns_options.uids[0].length: 65536
		+ container.mounts[0].gidMappings[0].container_id: 0
		+ container.mounts[0].gidMappings[0].host_id: 131072
		+ container.mounts[0].gidMappings[0].length: 65536
		+ container.mounts[0].uidMappings[0].container_id: 0
		+ container.mounts[0].uidMappings[0].host_id: 131072
		+ container.mounts[0].uidMappings[0].length: 65536`},
	{covers: "SecurityContext.ProcMount", yaml: `procMount: Default`, with: func(s *translate.Settings, _ *translate.ContainerInput) {
		s.MaskedPaths = []string{"/sys/devices/system/cpu/cpu0/thermal_throttle"}
	}, want: `
		+ container.linux.security_context.masked_paths[12]: /sys/devices/system/cpu/cpu0/thermal_throttle`},
	{covers: "SecurityContext.SeccompProfile SeccompProfile.Type", yaml: `seccompProfile: {type: RuntimeDefault}`, want: `
		- container.linux.security_context.seccomp.profile_type: Unconfined
		+ container.linux.security_context.seccomp.profile_type: RuntimeDefault`},
	{covers: "SeccompProfile.Type", yaml: `seccompProfile: {type: Unconfined}`, spec: `securityContext: {seccompProfile: {type: RuntimeDefault}}`},
	{covers: "SeccompProfile.LocalhostProfile", yaml: `seccompProfile: {type: Localhost, localhostProfile: p/x.json}`, want: `
		- container.linux.security_context.seccomp.localhost_ref:
		- container.linux.security_context.seccomp.profile_type: Unconfined
		+ container.linux.security_context.seccomp.localhost_ref: /root/seccomp/p/x.json
		+ container.linux.security_context.seccomp.profile_type: Localhost`},
	{covers: "SeccompProfile.LocalhostProfile", yaml: `seccompProfile: {type: Localhost, localhostProfile: ../x}`, err: "inside the node's seccomp directory"},
	{covers: "SecurityContext.SeccompProfile", with: confinedByDefault, want: `
		- container.linux.security_context.seccomp.profile_type: Unconfined
		+ container.linux.security_context.seccomp.profile_type: RuntimeDefault`},
	{covers: "SecurityContext.AppArmorProfile AppArmorProfile.Type", yaml: `appArmorProfile: {type: RuntimeDefault}`, want: `
		+ container.linux.security_context.apparmor.localhost_ref:
		+ container.linux.security_context.apparmor.profile_type: RuntimeDefault`},
	{covers: "AppArmorProfile.Type", yaml: `appArmorProfile: {type: Unconfined}`, spec: `securityContext: {appArmorProfile: {type: RuntimeDefault}}`, want: `
		+ container.linux.security_context.apparmor.localhost_ref:
		+ container.linux.security_context.apparmor.profile_type: Unconfined`},
	{covers: "AppArmorProfile.LocalhostProfile", yaml: `appArmorProfile: {type: Localhost, localhostProfile: k8s-nginx}`, want: `
		+ container.linux.security_context.apparmor.localhost_ref: k8s-nginx
		+ container.linux.security_context.apparmor.profile_type: Localhost`},
	{covers: "AppArmorProfile.LocalhostProfile", yaml: `appArmorProfile: {type: Localhost, localhostProfile: gone}`, with: func(s *translate.Settings, _ *translate.ContainerInput) {
		s.AppArmorLoaded = func(string) (bool, error) { return false, nil }
	}, err: `profile "gone" is not loaded`},
}
