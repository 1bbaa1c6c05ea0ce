package translate_test

import (
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/runtime/userns"
)

func TestContainerFields(t *testing.T) { play(t, containerFields, ownContainer) }

var containerFields = []row{
	{covers: "Container.Name", yaml: `name: other`, want: `
		- container.labels.[io.kubernetes.container.name]: main
		- container.log_path: main/0.log
		- container.metadata.name: main
		+ container.labels.[io.kubernetes.container.name]: other
		+ container.log_path: other/0.log
		+ container.metadata.name: other`},
	{covers: "Container.Image", yaml: `image: example/web:2`, want: `
		- container.annotations.[deckhand.io/image]: example/web:1
		- container.image.user_specified_image: example/web:1
		+ container.annotations.[deckhand.io/image]: example/web:2
		+ container.image.user_specified_image: example/web:2`},
	{covers: "Container.Command", yaml: `command: [/web, $(PORT), $$(PORT), $(OTHER)]`, want: `
		+ container.command[0]: /web
		+ container.command[1]: 80
		+ container.command[2]: $(PORT)
		+ container.command[3]: $(OTHER)`},
	{covers: "Container.Args", yaml: `args: ["--port=$(PORT)", "$$(PORT)"]`, want: `
		+ container.args[0]: --port=80
		+ container.args[1]: $(PORT)`},
	{covers: "Container.WorkingDir", yaml: `workingDir: /srv`, want: `
		- container.working_dir:
		+ container.working_dir: /srv`},
	{covers: "Container.Ports ContainerPort.ContainerPort ContainerPort.HostPort ContainerPort.Protocol ContainerPort.HostIP ContainerPort.Name", yaml: `
ports:
- {name: web, containerPort: 80, hostPort: 8080, protocol: TCP, hostIP: 127.0.0.1}
- {containerPort: 53, hostPort: 54, protocol: UDP}
- {containerPort: 99, hostPort: 99, protocol: SCTP}
- {containerPort: 81, protocol: TCP}`, want: `
		+ sandbox.port_mappings[0].container_port: 80
		+ sandbox.port_mappings[0].host_ip: 127.0.0.1
		+ sandbox.port_mappings[0].host_port: 8080
		+ sandbox.port_mappings[0].protocol: TCP
		+ sandbox.port_mappings[1].container_port: 53
		+ sandbox.port_mappings[1].host_ip:
		+ sandbox.port_mappings[1].host_port: 54
		+ sandbox.port_mappings[1].protocol: UDP
		+ sandbox.port_mappings[2].container_port: 99
		+ sandbox.port_mappings[2].host_ip:
		+ sandbox.port_mappings[2].host_port: 99
		+ sandbox.port_mappings[2].protocol: SCTP
		+ container.annotations.[io.kubernetes.container.ports]: [{"name":"web","hostPort":8080,"containerPort":80,"protocol":"TCP","hostIP":"127.0.0.1"},{"hostPort":54,"containerPort":53,"protocol":"UDP"},{"hostPort":99,"containerPort":99,"protocol":"SCTP"},{"containerPort":81,"protocol":"TCP"}]`},
	{covers: "Container.Ports", yaml: `ports: [{containerPort: 80, hostPort: 80}]`, spec: `hostNetwork: true`, want: `
		- sandbox.hostname: web
		- sandbox.linux.security_context.namespace_options.network: POD
		- container.linux.security_context.namespace_options.network: POD
		+ sandbox.hostname:
		+ sandbox.linux.security_context.namespace_options.network: NODE
		+ container.annotations.[io.kubernetes.container.ports]: [{"hostPort":80,"containerPort":80}]
		+ container.linux.security_context.namespace_options.network: NODE`},
	{covers: "Container.EnvFrom", yaml: `envFrom: [{configMapRef: {name: a}}]`, by: "internal/runtime/translate/env"},
	{covers: "Container.Env", yaml: `env: [{name: A, value: b}]`, by: "internal/runtime/translate/env"},
	{covers: "Container.Env", with: func(_ *translate.Settings, in *translate.ContainerInput) {
		in.Env = append(in.Env, &runtimeapi.KeyValue{Key: "A", Value: []byte("b")})
	}, want: `
		+ container.envs[1].key: A
		+ container.envs[1].value: Yg==`},
	{covers: "Container.Resources", yaml: `resources: {limits: {cpu: 500m, memory: 64Mi}}`, want: `
		- sandbox.linux.resources.cpu_quota: 0
		- sandbox.linux.resources.cpu_shares: 2
		- sandbox.linux.resources.memory_limit_in_bytes: 0
		- container.linux.resources.cpu_quota: 0
		- container.linux.resources.cpu_shares: 2
		- container.linux.resources.memory_limit_in_bytes: 0
		+ sandbox.linux.resources.cpu_quota: 50000
		+ sandbox.linux.resources.cpu_shares: 512
		+ sandbox.linux.resources.memory_limit_in_bytes: 67108864
		+ container.annotations.[deckhand.io/resources]: {"limits":{"cpu":"500m","memory":"64Mi"}}
		+ container.linux.resources.cpu_quota: 50000
		+ container.linux.resources.cpu_shares: 512
		+ container.linux.resources.memory_limit_in_bytes: 67108864`},
	{covers: "Container.ResizePolicy", yaml: `resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}]`, by: "internal/lifecycle"},
	{covers: "Container.RestartPolicy", yaml: `restartPolicy: Always`, by: "internal/lifecycle"},
	{covers: "Container.RestartPolicyRules", yaml: `restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [3]}}]`, by: "internal/lifecycle"},
	{covers: "Container.VolumeMounts", yaml: `volumeMounts: [{name: data, mountPath: /data}]`, by: "internal/volume"},
	{covers: "Container.VolumeMounts", spec: `hostUsers: false`, with: withUsers, want: `
		- sandbox.linux.security_context.namespace_options.userns_options.mode: NODE
		- container.linux.security_context.namespace_options.userns_options.mode: NODE
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
	{covers: "Container.VolumeDevices", yaml: `volumeDevices: [{name: data, devicePath: /dev/data}]`, by: "internal/runtime/translate"},
	{covers: "Container.VolumeDevices", with: func(_ *translate.Settings, in *translate.ContainerInput) {
		in.Devices = []*runtimeapi.Device{{ContainerPath: "/dev/data", HostPath: "/dev/sdb", Permissions: "mrw"}}
		in.CDIDevices = []*runtimeapi.CDIDevice{{Name: "example.com/gpu=0"}}
	}, want: `
		+ container.CDI_devices[0].name: example.com/gpu=0
		+ container.devices[0].container_path: /dev/data
		+ container.devices[0].host_path: /dev/sdb
		+ container.devices[0].permissions: mrw`},
	{covers: "Container.LivenessProbe", yaml: `livenessProbe: {exec: {command: [live]}}`, by: "internal/worker/probe"},
	{covers: "Container.ReadinessProbe", yaml: `readinessProbe: {exec: {command: [ready]}}`, by: "internal/worker/probe"},
	{covers: "Container.StartupProbe", yaml: `startupProbe: {exec: {command: [started]}}`, by: "internal/worker/probe"},
	{covers: "Container.Lifecycle Lifecycle.PreStop", yaml: `lifecycle: {preStop: {exec: {command: [bye]}}}`, by: "internal/worker/handler", want: `
		+ container.annotations.[io.kubernetes.container.preStopHandler]: {"exec":{"command":["bye"]}}`},
	{covers: "Lifecycle.PostStart", yaml: `lifecycle: {postStart: {exec: {command: [hello]}}}`, by: "internal/worker/handler"},
	{covers: "Lifecycle.StopSignal", yaml: `lifecycle: {stopSignal: SIGRTMIN+1}`, want: `
		- container.stop_signal: RUNTIME_DEFAULT
		+ container.stop_signal: SIGRTMINPLUS1`},
	{covers: "Container.TerminationMessagePath", yaml: `terminationMessagePath: /dev/end`, by: "internal/volume", want: `
		- container.annotations.[io.kubernetes.container.terminationMessagePath]:
		+ container.annotations.[io.kubernetes.container.terminationMessagePath]: /dev/end`},
	{covers: "Container.TerminationMessagePolicy", yaml: `terminationMessagePolicy: FallbackToLogsOnError`, by: "internal/runtime/logs", want: `
		- container.annotations.[io.kubernetes.container.terminationMessagePolicy]:
		+ container.annotations.[io.kubernetes.container.terminationMessagePolicy]: FallbackToLogsOnError`},
	{covers: "Container.ImagePullPolicy", yaml: `imagePullPolicy: Always`, by: "internal/image/pull"},
	{covers: "Container.SecurityContext", yaml: `securityContext: {readOnlyRootFilesystem: true}`, want: `
		- container.linux.security_context.readonly_rootfs: false
		+ container.linux.security_context.readonly_rootfs: true`},
	{covers: "Container.Stdin", yaml: `stdin: true`, want: `
		- container.stdin: false
		+ container.stdin: true`},
	{covers: "Container.StdinOnce", yaml: `{stdin: true, stdinOnce: true}`, want: `
		- container.stdin: false
		- container.stdin_once: false
		+ container.stdin: true
		+ container.stdin_once: true`},
	{covers: "Container.TTY", yaml: `tty: true`, want: `
		- container.tty: false
		+ container.tty: true`},
	{covers: "Container", with: func(_ *translate.Settings, in *translate.ContainerInput) {
		in.Attempt, in.Backoff, in.RuntimeHandler = 3, 20*time.Second, "kata"
	}, want: `
		- container.annotations.[io.kubernetes.container.restartCount]: 0
		- container.image.runtime_handler:
		- container.log_path: main/0.log
		- container.metadata.attempt: 0
		+ container.annotations.[deckhand.io/restart-backoff]: 20s
		+ container.annotations.[io.kubernetes.container.restartCount]: 3
		+ container.image.runtime_handler: kata
		+ container.log_path: main/3.log
		+ container.metadata.attempt: 3`},
}

// withUsers gives the pod a range of IDs.
func withUsers(_ *translate.Settings, in *translate.ContainerInput) {
	in.Users = &userns.Range{HostID: 131072, Length: 65536}
}
