package spec

import (
	"strings"
	"testing"
)

func sc(fields string) string    { return c("securityContext: {" + fields + "}") }
func podSC(fields string) string { return "{securityContext: {" + fields + "}}" }

func TestSecurityContextRules(t *testing.T) {
	const s = "spec.containers[0].securityContext"
	runRules(t, []ruleCase{
		{sc("runAsUser: -1, runAsGroup: 2147483648"), "Invalid " + s + ".runAsUser\nInvalid " + s + ".runAsGroup"},
		{sc("privileged: true, allowPrivilegeEscalation: false"), "Invalid " + s},
		{sc("allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}"), "Invalid " + s},
		{sc("allowPrivilegeEscalation: false, capabilities: {add: [SYS_ADMIN]}"), ""},
		{sc("allowPrivilegeEscalation: false, capabilities: {add: [NET_ADMIN], drop: [SYS_ADMIN]}"), ""},
		{sc("procMount: Some"), "NotSupported " + s + ".procMount"},
		{sc("procMount: Unmasked"), "Invalid " + s + ".procMount"},
		{"{hostUsers: false, containers: [{name: c, image: i, securityContext: {procMount: Unmasked}}]}", ""},
		{sc("seccompProfile: {}"), "Required " + s + ".seccompProfile.type"},
		{sc("seccompProfile: {type: Mine}"), "NotSupported " + s + ".seccompProfile.type"},
		{sc("seccompProfile: {type: Localhost}"), "Required " + s + ".seccompProfile.localhostProfile"},
		{sc("seccompProfile: {type: Localhost, localhostProfile: ../x}"), "Invalid " + s + ".seccompProfile.localhostProfile"},
		{sc("seccompProfile: {type: Localhost, localhostProfile: /x}"), "Invalid " + s + ".seccompProfile.localhostProfile"},
		{sc("seccompProfile: {type: Localhost, localhostProfile: a/x}"), ""},
		{sc("seccompProfile: {type: Unconfined, localhostProfile: a}"), "Invalid " + s + ".seccompProfile.localhostProfile"},
		{sc("appArmorProfile: {}"), "Required " + s + ".appArmorProfile.type"},
		{sc("appArmorProfile: {type: Localhost}"), "Required " + s + ".appArmorProfile.localhostProfile"},
		{sc("appArmorProfile: {type: Localhost, localhostProfile: ' '}"), "Required " + s + ".appArmorProfile.localhostProfile"},
		{sc("appArmorProfile: {type: Localhost, localhostProfile: ' a'}"), "Invalid " + s + ".appArmorProfile.localhostProfile"},
		{sc("appArmorProfile: {type: Localhost, localhostProfile: " + strings.Repeat("a", 4096) + "}"), "TooLong " + s + ".appArmorProfile.localhostProfile"},
		{sc("appArmorProfile: {type: RuntimeDefault, localhostProfile: a}"), "Invalid " + s + ".appArmorProfile.localhostProfile"},
		{podSC("runAsUser: -1, runAsGroup: -1, fsGroup: -1, supplementalGroups: [1, -1]"),
			"Invalid spec.securityContext.runAsUser\nInvalid spec.securityContext.runAsGroup\nInvalid spec.securityContext.fsGroup\nInvalid spec.securityContext.supplementalGroups[1]"},
		{podSC("fsGroupChangePolicy: x, supplementalGroupsPolicy: x, seLinuxChangePolicy: x"),
			"NotSupported spec.securityContext.fsGroupChangePolicy\nNotSupported spec.securityContext.supplementalGroupsPolicy\nNotSupported spec.securityContext.seLinuxChangePolicy"},
		{podSC("seccompProfile: {type: x}, appArmorProfile: {type: x}"), "NotSupported spec.securityContext.seccompProfile.type\nNotSupported spec.securityContext.appArmorProfile.type"},
	})
}

func TestSysctlRules(t *testing.T) {
	const s = "spec.securityContext.sysctls"
	const net = "securityContext: {sysctls: [{name: net.ipv4.ip_forward}, {name: kernel.shm_rmid_forced}, {name: kernel.sem}, {name: fs/mqueue/msg_max}]}}"
	runRules(t, []ruleCase{
		{"{" + net, ""},
		{podSC("sysctls: [{name: ''}, {name: 'a b'}, {name: A.b}, {name: " + strings.Repeat("a", 254) + "}]"), "Required " + s + "[0].name\nInvalid " + s + "[1].name\nInvalid " + s + "[2].name\nInvalid " + s + "[3].name"},
		{podSC("sysctls: [{name: net.ipv4.conf.eth0/1.x}, {name: net/ipv4/conf/eth0.1/x}]"), "Duplicate " + s + "[1].name"},
		{"{hostNetwork: true, " + net, "Invalid " + s + "[0].name"},
		{"{hostIPC: true, " + net, "Invalid " + s + "[1].name\nInvalid " + s + "[2].name\nInvalid " + s + "[3].name"},
	})
}

func TestHostNamespaceRules(t *testing.T) {
	runRules(t, []ruleCase{
		{"{shareProcessNamespace: true, hostPID: true}", "Invalid spec.shareProcessNamespace"},
		{"{shareProcessNamespace: false, hostPID: true}", ""},
		{"{hostUsers: false, hostNetwork: true, hostPID: true, hostIPC: true}", "Forbidden spec.hostNetwork\nForbidden spec.hostPID\nForbidden spec.hostIPC"},
		{"{hostUsers: true, hostNetwork: true, hostPID: true, hostIPC: true}", ""},
		{"{hostUsers: false, volumes: [{name: p, persistentVolumeClaim: {claimName: x}}], initContainers: [{name: i, image: i, volumeDevices: [{name: p, devicePath: /d}]}], containers: [{name: c, image: i, volumeDevices: [{name: p, devicePath: /d}]}]}",
			"Forbidden spec.initContainers[0].volumeDevices\nForbidden spec.containers[0].volumeDevices"},
	})
}

func TestOperatingSystemRules(t *testing.T) {
	const all = "hostPID: true, hostIPC: true, hostUsers: true, resources: {}, shareProcessNamespace: false, " +
		"securityContext: {appArmorProfile: {type: Unconfined}, seLinuxOptions: {}, seLinuxChangePolicy: Recursive, seccompProfile: {type: Unconfined}, fsGroup: 1, fsGroupChangePolicy: Always, sysctls: [{name: a.b}], runAsUser: 1, runAsGroup: 1, supplementalGroups: [1], supplementalGroupsPolicy: Merge}, " +
		"initContainers: [{name: i, image: i, securityContext: {privileged: true}}], " +
		"containers: [{name: c, image: i, securityContext: {appArmorProfile: {type: Unconfined}, seLinuxOptions: {}, seccompProfile: {type: Unconfined}, capabilities: {}, readOnlyRootFilesystem: true, privileged: false, allowPrivilegeEscalation: true, procMount: Default, runAsUser: 1, runAsGroup: 1}}]"
	want := ""
	for _, f := range strings.Fields("hostPID hostIPC hostUsers resources shareProcessNamespace " +
		"securityContext.appArmorProfile securityContext.seLinuxOptions securityContext.seLinuxChangePolicy securityContext.seccompProfile securityContext.fsGroup securityContext.fsGroupChangePolicy securityContext.sysctls securityContext.runAsUser securityContext.runAsGroup securityContext.supplementalGroups securityContext.supplementalGroupsPolicy " +
		"initContainers[0].securityContext.privileged " +
		"containers[0].securityContext.appArmorProfile containers[0].securityContext.seLinuxOptions containers[0].securityContext.seccompProfile containers[0].securityContext.capabilities containers[0].securityContext.readOnlyRootFilesystem containers[0].securityContext.privileged containers[0].securityContext.allowPrivilegeEscalation containers[0].securityContext.procMount containers[0].securityContext.runAsUser containers[0].securityContext.runAsGroup") {
		want += "\nForbidden spec." + f
	}
	runRules(t, []ruleCase{
		{"{os: {}}", "Required spec.os.name"},
		{"{os: {name: plan9}}", "NotSupported spec.os.name"},
		{"{os: {name: windows}, " + all + "}", want[1:]},
		{"{os: {name: linux}, " + all + "}", ""},
		{"{os: {name: linux}, securityContext: {windowsOptions: {}}, containers: [{name: c, image: i, securityContext: {windowsOptions: {}}}]}",
			"Forbidden spec.securityContext.windowsOptions\nForbidden spec.containers[0].securityContext.windowsOptions"},
	})
}

func TestWindowsRules(t *testing.T) {
	const w = "spec.securityContext.windowsOptions"
	options := func(fields string) string { return podSC("windowsOptions: {" + fields + "}") }
	runRules(t, []ruleCase{
		{options(`gmsaCredentialSpecName: a.b, gmsaCredentialSpec: x, runAsUserName: 'DOM\user'`), ""},
		{options("gmsaCredentialSpecName: A, gmsaCredentialSpec: ''"), "Invalid " + w + ".gmsaCredentialSpecName\nInvalid " + w + ".gmsaCredentialSpec"},
		{options("gmsaCredentialSpec: " + strings.Repeat("x", 64<<10+1)), "TooLong " + w + ".gmsaCredentialSpec"},
		{options("runAsUserName: ''"), "Invalid " + w + ".runAsUserName"},
		{options("runAsUserName: a@b"), "Invalid " + w + ".runAsUserName"},
		{options(`runAsUserName: 'a b\c'`), "Invalid " + w + ".runAsUserName"},
		{options(`runAsUserName: 'a\'`), "Invalid " + w + ".runAsUserName"},
		{options("hostProcess: true"), "Invalid spec.hostNetwork"},
		{"{hostNetwork: true, containers: [{name: a, image: i, securityContext: {windowsOptions: {hostProcess: true}}}, {name: b, image: i}]}", "Invalid spec"},
	})
}
