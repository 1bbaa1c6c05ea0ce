package takeover

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// kind is a pod that runs, and what it comes to.
type kind struct {
	name, spec string
	// labels is their YAML.
	labels string
	// phase is where it ends; empty for a pod that becomes ready and stays so.
	phase v1.PodPhase
}

// crashing is the kind that never settles.
const crashing = "crashing"

// device is a pod that has a device, for which the plugin has to be there.
var device = kind{name: "device", spec: containers("", container("web", "resources: {limits: {example.com/gpu: 1}}"))}

// kinds are pods of all kinds but device; port is free, and dir may be theirs.
func kinds(port int, dir string) []kind {
	return []kind{
		{name: "plain", spec: containers("", container("web"))},
		{name: "init", spec: containers("", container("web"), container("one", "args: [exit, '0']"), container("two", "args: [exit, '0']"))},
		{name: "sidecar", spec: containers("", container("job", "args: [sleep, 1h]"),
			container("proxy", "restartPolicy: Always", "startupProbe: {httpGet: {port: 8080}, periodSeconds: 1}"))},
		{name: "host-network", spec: containers("  hostNetwork: true\n  priorityClassName: system-node-critical\n",
			container("web", fmt.Sprintf("args: [serve, -listen, ':%d']", port), fmt.Sprintf("livenessProbe: {httpGet: {host: 127.0.0.1, port: %d}, periodSeconds: 1}", port)))},
		{name: "empty-dir", spec: containers("  volumes: [{name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]\n",
			container("clock", "args: [clock, /disk/clock]", mounts), container("disk", "args: [write, /disk/kept, disk]", mounts), container("memory", "args: [write, /memory/kept, memory]", mounts))},
		{name: "host-path", spec: containers(fmt.Sprintf("  volumes: [{name: host, hostPath: {path: %s, type: DirectoryOrCreate}}]\n", dir),
			container("clock", "args: [clock, /host/clock]", "volumeMounts: [{name: host, mountPath: /host, subPath: sub}]"))},
		{name: "probes", spec: containers("", container("web", "livenessProbe: {httpGet: {port: 8080}, periodSeconds: 1}",
			"readinessProbe: {tcpSocket: {port: 8080}, periodSeconds: 1}", "startupProbe: {httpGet: {port: 8080}, periodSeconds: 1}", "lifecycle: {preStop: {sleep: {seconds: 1}}}"))},
		{name: "guaranteed", spec: containers("  securityContext: {runAsUser: 1000, fsGroup: 7, seccompProfile: {type: RuntimeDefault}}\n",
			container("web", "resources: {limits: {cpu: 100m, memory: 64Mi}}", "ports: [{containerPort: 8080, name: web}]"))},
		{name: "burstable", spec: containers("", container("web", "resources: {requests: {cpu: 10m}, limits: {memory: 64Mi}}",
			"env: [{name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]")+container("other", "args: [sleep, 1h]"))},
		{name: "completed", spec: containers("  restartPolicy: OnFailure\n", container("job", "args: [exit, '0']")), phase: v1.PodSucceeded},
		{name: "failed", spec: containers("  restartPolicy: Never\n", container("job", "args: [exit, '3']")), phase: v1.PodFailed},
		{name: crashing, spec: containers("", container("job", "args: [exit, '1']"))},
	}
}

const mounts = "volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}]"

func containers(fields, mains string, inits ...string) string {
	text := fields
	for i, c := range inits {
		if i == 0 {
			text += "  initContainers:\n"
		}
		text += c
	}
	return text + "  containers:\n" + mains
}

// container is an element of a list of containers, with these fields.
func container(name string, fields ...string) string {
	text := fmt.Sprintf("  - name: %s\n    image: %s\n", name, node.Image)
	for _, f := range fields {
		text += "    " + f + "\n"
	}
	return text
}

// write writes the manifest of a pod of this kind.
func (k kind) write(n *node.Node, pod string) {
	n.Write(pod+".yaml", fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata:\n  name: %s\n  labels: %s\nspec:\n  terminationGracePeriodSeconds: 2\n%s",
		pod, k.labels, k.spec))
}

// settled reports what the status of a pod of this kind still lacks. A crashing one has to have so many restarts.
func (k kind) settled(s *v1.PodStatus, restarts int) error {
	switch {
	case k.phase != "":
		if s.Phase != k.phase {
			return fmt.Errorf("phase %s, want %s", s.Phase, k.phase)
		}
		return nil
	case k.name == crashing:
		if c := s.ContainerStatuses; len(c) != 1 || int(c[0].RestartCount) < restarts {
			return fmt.Errorf("%+v, want %d restarts", c, restarts)
		}
		return nil
	}
	for _, c := range s.Conditions {
		if c.Type == v1.PodReady && c.Status == v1.ConditionTrue {
			return nil
		}
	}
	return errors.New("isn't ready")
}
