package spec

import (
	"strings"
	"testing"
)

func TestContainerRules(t *testing.T) {
	runRules(t, []ruleCase{
		{"{containers: [{image: i}, {name: A, image: i}, {name: b}, {name: d, image: ' i'}]}",
			"Required spec.containers[0].name\nInvalid spec.containers[1].name\nRequired spec.containers[2].image\nInvalid spec.containers[3].image"},
		{"{containers: [{name: a, image: i}, {name: a, image: i}], initContainers: [{name: a, image: i}]}",
			"Duplicate spec.containers[1].name\nDuplicate spec.initContainers[0].name"},
		{c("imagePullPolicy: Often"), "NotSupported spec.containers[0].imagePullPolicy"},
		{c("terminationMessagePolicy: Never"), "NotSupported spec.containers[0].terminationMessagePolicy"},
	})
}

func TestPortRules(t *testing.T) {
	runRules(t, []ruleCase{
		{c("ports: [{containerPort: 0}, {containerPort: 65536}, {containerPort: -1}]"),
			"Required spec.containers[0].ports[0].containerPort\nInvalid spec.containers[0].ports[1].containerPort\nInvalid spec.containers[0].ports[2].containerPort"},
		{c("ports: [{containerPort: 1, hostPort: 70000}]"), "Invalid spec.containers[0].ports[0].hostPort"},
		{c("ports: [{containerPort: 1, protocol: tcp}]"), "NotSupported spec.containers[0].ports[0].protocol"},
		{c("ports: [{containerPort: 1, name: a_b}]"), "Invalid spec.containers[0].ports[0].name"},
		{c("ports: [{containerPort: 1, name: a}, {containerPort: 2, name: a}]"), "Duplicate spec.containers[0].ports[1].name"},
		{c("ports: [{containerPort: 1, hostIP: here}]"), "Invalid spec.containers[0].ports[0].hostIP"},
		{"{containers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 5}]}, {name: b, image: i, ports: [{containerPort: 2, hostPort: 5}, {containerPort: 2, hostPort: 5, protocol: UDP}, {containerPort: 2, hostPort: 5, hostIP: 127.0.0.1}]}]}",
			"Duplicate spec.containers[1].ports[0].hostPort"},
		{"{initContainers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 5}, {containerPort: 2, hostPort: 5}]}], containers: [{name: b, image: i, ports: [{containerPort: 2, hostPort: 5}]}]}",
			"Duplicate spec.initContainers[0].ports[1].hostPort"},
		{"{hostNetwork: true, containers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 5}, {containerPort: 2}]}]}",
			"Invalid spec.containers[0].ports[0].hostPort"},
	})
}

func TestEnvRules(t *testing.T) {
	const v = "spec.containers[0].env[0].valueFrom"
	runRules(t, []ruleCase{
		{c("env: [{name: ''}, {name: 'a=b'}, {name: 'a b.c-d', value: x}]"), "Required spec.containers[0].env[0].name\nInvalid spec.containers[0].env[1].name"},
		{c("env: [{name: a, valueFrom: {}}]"), "Invalid " + v},
		{c("env: [{name: a, value: b, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]"), "Invalid " + v},
		{c("env: [{name: a, valueFrom: {fieldRef: {fieldPath: metadata.name}, secretKeyRef: {name: s, key: k}}}]"), "Invalid " + v},
		{c("env: [{name: a, valueFrom: {fieldRef: {}}}]"), "Required " + v + ".fieldRef.fieldPath"},
		{c("env: [{name: a, valueFrom: {fieldRef: {apiVersion: v2, fieldPath: status.podIPs}}}]"), "NotSupported " + v + ".fieldRef.apiVersion"},
		{c("env: [{name: a, valueFrom: {fieldRef: {fieldPath: metadata.labels}}}]"), "NotSupported " + v + ".fieldRef.fieldPath"},
		{c(`env: [{name: a, valueFrom: {fieldRef: {fieldPath: "metadata.labels['a/b']"}}}]`), ""},
		{c(`env: [{name: a, valueFrom: {fieldRef: {fieldPath: "metadata.labels['a b']"}}}]`), "Invalid " + v + ".fieldRef.fieldPath"},
		{c(`env: [{name: a, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['a b']"}}}]`), "Invalid " + v + ".fieldRef.fieldPath"},
		{c(`env: [{name: a, valueFrom: {fieldRef: {fieldPath: "spec.nodeSelector['a']"}}}]`), "Invalid " + v + ".fieldRef.fieldPath"},
		{c("env: [{name: a, valueFrom: {resourceFieldRef: {}}}]"), "Required " + v + ".resourceFieldRef.resource"},
		{c("env: [{name: a, valueFrom: {resourceFieldRef: {resource: limits.gpu}}}]"), "NotSupported " + v + ".resourceFieldRef.resource"},
		{c("env: [{name: a, valueFrom: {resourceFieldRef: {resource: cpu}}}]"), "NotSupported " + v + ".resourceFieldRef.resource"},
		{c("env: [{name: a, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 2m}}}]"), "Invalid " + v + ".resourceFieldRef.divisor"},
		{c("env: [{name: a, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1m}}}]"), "Invalid " + v + ".resourceFieldRef.divisor"},
		{c("env: [{name: a, valueFrom: {resourceFieldRef: {resource: limits.hugepages-2Mi, divisor: 1Mi}}}]"), ""},
		{c("env: [{name: a, valueFrom: {configMapKeyRef: {}}}]"), "Required " + v + ".configMapKeyRef.name\nRequired " + v + ".configMapKeyRef.key"},
		{c("env: [{name: a, valueFrom: {secretKeyRef: {name: s, key: 'a b'}}}]"), "Invalid " + v + ".secretKeyRef.key"},
		{mount("env: [{name: a, valueFrom: {fileKeyRef: {volumeName: v, path: a/b, key: k}}}]"), ""},
		{mount("env: [{name: a, valueFrom: {fileKeyRef: {}}}]"), "Required " + v + ".fileKeyRef.volumeName\nRequired " + v + ".fileKeyRef.path\nRequired " + v + ".fileKeyRef.key"},
		{mount("env: [{name: a, valueFrom: {fileKeyRef: {volumeName: x, path: ../b, key: a=b}}}]"), "NotFound " + v + ".fileKeyRef.volumeName\nInvalid " + v + ".fileKeyRef.path\nInvalid " + v + ".fileKeyRef.key"},
		{mount("env: [{name: a, valueFrom: {fileKeyRef: {volumeName: v, path: b, key: " + strings.Repeat("k", 129) + "}}}]"), "TooLong " + v + ".fileKeyRef.key"},
		{c("envFrom: [{}]"), "Invalid spec.containers[0].envFrom[0]"},
		{c("envFrom: [{configMapRef: {name: a}, secretRef: {name: a}}]"), "Invalid spec.containers[0].envFrom[0]"},
		{c("envFrom: [{configMapRef: {}}, {secretRef: {}}]"), "Required spec.containers[0].envFrom[0].configMapRef.name\nRequired spec.containers[0].envFrom[1].secretRef.name"},
		{c("envFrom: [{prefix: a=, secretRef: {name: a}}, {prefix: A_, secretRef: {name: a}}]"), "Invalid spec.containers[0].envFrom[0].prefix"},
	})
}

func TestMountRules(t *testing.T) {
	const m = "spec.containers[0].volumeMounts[0]"
	const d = "spec.containers[0].volumeDevices[0]"
	runRules(t, []ruleCase{
		{mount("volumeMounts: [{mountPath: /a}]"), "Required " + m + ".name"},
		{mount("volumeMounts: [{name: x, mountPath: /a}]"), "NotFound " + m + ".name"},
		{mount("volumeMounts: [{name: v}]"), "Required " + m + ".mountPath"},
		{mount("volumeMounts: [{name: v, mountPath: /a}, {name: p, mountPath: /a}]"), "Invalid spec.containers[0].volumeMounts[1].mountPath"},
		{mount("volumeMounts: [{name: v, mountPath: /a, subPath: /b}]"), "Invalid " + m + ".subPath"},
		{mount("volumeMounts: [{name: v, mountPath: /a, subPath: b/../../c}]"), "Invalid " + m + ".subPath"},
		{mount("volumeMounts: [{name: v, mountPath: /a, subPath: ..b/c..}]"), ""},
		{mount("volumeMounts: [{name: v, mountPath: /a, subPathExpr: ../$(X)}]"), "Invalid " + m + ".subPathExpr"},
		{mount("volumeMounts: [{name: v, mountPath: /a, subPath: b, subPathExpr: b}]"), "Invalid " + m + ".subPathExpr"},
		{mount("volumeMounts: [{name: v, mountPath: /a, mountPropagation: Both}]"), "NotSupported " + m + ".mountPropagation"},
		{mount("volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}]"), "Forbidden " + m + ".mountPropagation"},
		{mount("securityContext: {privileged: true}, volumeMounts: [{name: v, mountPath: /a, mountPropagation: Bidirectional}]"), ""},
		{mount("volumeMounts: [{name: v, mountPath: /a, recursiveReadOnly: Enabled}]"), "Forbidden " + m + ".recursiveReadOnly"},
		{mount("volumeMounts: [{name: v, mountPath: /a, readOnly: true, recursiveReadOnly: Perhaps}]"), "NotSupported " + m + ".recursiveReadOnly"},
		{mount("volumeMounts: [{name: v, mountPath: /a, readOnly: true, recursiveReadOnly: IfPossible, mountPropagation: HostToContainer}]"), "Forbidden " + m + ".recursiveReadOnly"},
		{mount("volumeMounts: [{name: v, mountPath: /a, readOnly: true, recursiveReadOnly: Disabled, mountPropagation: HostToContainer}]"), ""},
		{mount("volumeDevices: [{name: p, devicePath: /dev/x}]"), ""},
		{mount("volumeDevices: [{}]"), "Required " + d + ".name\nRequired " + d + ".devicePath"},
		{mount("volumeDevices: [{name: x, devicePath: /dev/x}]"), "NotFound " + d + ".name"},
		{mount("volumeDevices: [{name: v, devicePath: /dev/x}]"), "Invalid " + d + ".name"},
		{mount("volumeDevices: [{name: p, devicePath: /dev/../x}]"), "Invalid " + d + ".devicePath"},
		{mount("volumeDevices: [{name: p, devicePath: /dev/x}, {name: p, devicePath: /dev/x}]"), "Invalid spec.containers[0].volumeDevices[1].name\nInvalid spec.containers[0].volumeDevices[1].devicePath"},
		{mount("volumeMounts: [{name: p, mountPath: /a}], volumeDevices: [{name: p, devicePath: /a}]"), "Invalid " + d + ".name\nInvalid " + d + ".devicePath"},
	})
}

func TestProbeRules(t *testing.T) {
	const p = "spec.containers[0].livenessProbe"
	runRules(t, []ruleCase{
		{c("livenessProbe: {}"), "Required " + p},
		{c("livenessProbe: {exec: {command: [a]}, httpGet: {port: 1}, tcpSocket: {port: 1}, grpc: {port: 1}}"), "Forbidden " + p + ".httpGet\nForbidden " + p + ".tcpSocket\nForbidden " + p + ".grpc"},
		{c("livenessProbe: {exec: {}}"), "Required " + p + ".exec.command"},
		{c("livenessProbe: {httpGet: {port: 0}}"), "Invalid " + p + ".httpGet.port"},
		{c("livenessProbe: {httpGet: {port: No-Name}}"), "Invalid " + p + ".httpGet.port"},
		{c("livenessProbe: {httpGet: {port: 1, scheme: FTP}}"), "NotSupported " + p + ".httpGet.scheme"},
		{c("livenessProbe: {httpGet: {port: 1, httpHeaders: [{name: X-A, value: b}, {name: 'a b'}]}}"), "Invalid " + p + ".httpGet.httpHeaders[1].name"},
		{c("livenessProbe: {tcpSocket: {port: 70000}}"), "Invalid " + p + ".tcpSocket.port"},
		{c("livenessProbe: {grpc: {port: 0}}"), "Invalid " + p + ".grpc.port"},
		{c("livenessProbe: {tcpSocket: {port: 1}, initialDelaySeconds: -1, timeoutSeconds: -1, periodSeconds: -1, failureThreshold: -1}"),
			"Invalid " + p + ".initialDelaySeconds\nInvalid " + p + ".timeoutSeconds\nInvalid " + p + ".periodSeconds\nInvalid " + p + ".failureThreshold"},
		{c("livenessProbe: {tcpSocket: {port: 1}, successThreshold: 2}"), "Invalid " + p + ".successThreshold"},
		{c("startupProbe: {tcpSocket: {port: 1}, successThreshold: 2}"), "Invalid spec.containers[0].startupProbe.successThreshold"},
		{c("readinessProbe: {tcpSocket: {port: 1}, successThreshold: 2}"), ""},
		{c("readinessProbe: {tcpSocket: {port: 1}, successThreshold: -1}"), "Invalid spec.containers[0].readinessProbe.successThreshold"},
		{c("livenessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 0}"), "Invalid " + p + ".terminationGracePeriodSeconds"},
		{c("readinessProbe: {tcpSocket: {port: 1}, terminationGracePeriodSeconds: 1}"), "Invalid spec.containers[0].readinessProbe.terminationGracePeriodSeconds"},
	})
}

func TestLifecycleRules(t *testing.T) {
	const l = "spec.containers[0].lifecycle"
	signal := func(os, signal string) string {
		return "{" + os + "containers: [{name: c, image: i, lifecycle: {stopSignal: " + signal + "}}]}"
	}
	runRules(t, []ruleCase{
		{c("lifecycle: {postStart: {}, preStop: {}}"), "Required " + l + ".postStart\nRequired " + l + ".preStop"},
		{c("lifecycle: {postStart: {exec: {}}, preStop: {httpGet: {port: 0}}}"), "Required " + l + ".postStart.exec.command\nInvalid " + l + ".preStop.httpGet.port"},
		{c("lifecycle: {preStop: {sleep: {seconds: 30}, tcpSocket: {port: 0}}}"), "Forbidden " + l + ".preStop.tcpSocket"},
		{c("lifecycle: {preStop: {sleep: {seconds: 30}}}"), ""},
		{c("lifecycle: {preStop: {sleep: {seconds: 31}}}"), "Invalid " + l + ".preStop.sleep.seconds"},
		{c("lifecycle: {preStop: {sleep: {seconds: -1}}}"), "Invalid " + l + ".preStop.sleep.seconds"},
		{c("lifecycle: {stopSignal: SIGTERM}"), "Forbidden " + l + ".stopSignal"},
		{signal("os: {name: linux}, ", "SIGRTMAX-14"), ""},
		{signal("os: {name: linux}, ", "SIGRTMIN+15"), ""},
		{signal("os: {name: linux}, ", "SIGNONE"), "NotSupported " + l + ".stopSignal"},
		{signal("os: {name: windows}, ", "SIGTERM"), ""},
		{signal("os: {name: windows}, ", "SIGHUP"), "NotSupported " + l + ".stopSignal"},
	})
}

func TestInitContainerRules(t *testing.T) {
	const i = "spec.initContainers[0]"
	const all = "lifecycle: {preStop: {sleep: {seconds: 1}}}, livenessProbe: {tcpSocket: {port: 1}}, readinessProbe: {tcpSocket: {port: 1}}, startupProbe: {tcpSocket: {port: 1}}"
	runRules(t, []ruleCase{
		{ic("command: [a]"), ""},
		{ic(all), "Forbidden " + i + ".lifecycle\nForbidden " + i + ".livenessProbe\nForbidden " + i + ".readinessProbe\nForbidden " + i + ".startupProbe"},
		{ic("restartPolicy: OnFailure, " + all), "Forbidden " + i + ".lifecycle\nForbidden " + i + ".livenessProbe\nForbidden " + i + ".readinessProbe\nForbidden " + i + ".startupProbe"},
		{ic("restartPolicy: Always, " + all), ""},
		{ic("restartPolicy: Always, livenessProbe: {}, lifecycle: {preStop: {}}"), "Required " + i + ".livenessProbe\nRequired " + i + ".lifecycle.preStop"},
		{ic("restartPolicy: Always, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [1]}}, {action: RestartAllContainers, exitCodes: {operator: In, values: [1]}}]"), "Forbidden " + i + ".restartPolicyRules[0].action"},
	})
}

func TestRestartRules(t *testing.T) {
	const r = "spec.containers[0].restartPolicyRules"
	const good = "{action: Restart, exitCodes: {operator: In, values: [1, 2]}}"
	runRules(t, []ruleCase{
		{c("restartPolicy: Never, restartPolicyRules: [" + good + "]"), ""},
		{c("restartPolicy: Sometimes"), "NotSupported spec.containers[0].restartPolicy"},
		{c("restartPolicyRules: [" + good + "]"), "Required spec.containers[0].restartPolicy"},
		{c("restartPolicy: Never, restartPolicyRules: " + repeat(good, 21)), "TooMany " + r},
		{c("restartPolicy: Never, restartPolicyRules: [{}]"), "Required " + r + "[0].action\nRequired " + r + "[0].exitCodes"},
		{c("restartPolicy: Never, restartPolicyRules: [{action: Stop, exitCodes: {operator: Is, values: [1, 1]}}]"),
			"NotSupported " + r + "[0].action\nNotSupported " + r + "[0].exitCodes.operator\nDuplicate " + r + "[0].exitCodes.values[1]"},
	})
	values := "0"
	for n := 1; n < 256; n++ {
		values += ", " + strings.Repeat("1", n%9+1) + string(rune('0'+n%10))
	}
	errs := Validate(podOf(t, c("restartPolicy: Never, restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: ["+values+"]}}]")))
	if len(errs) == 0 || describe(errs[:1]) != "TooMany "+r+"[0].exitCodes.values" {
		t.Errorf("256 exit codes: %v", errs.ToAggregate())
	}
}
