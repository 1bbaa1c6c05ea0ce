package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

func TestProbes(t *testing.T) {
	t.Parallel()
	n := startTools(t)
	for name, test := range map[string]func(*testing.T, *node.Node){
		"readiness": testReadiness, "startup and liveness": testStartupAndLiveness, "host network": testHostNetworkProbes,
		"frozen": testFrozen,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, n.For(t))
		})
	}
}

// Each kind of probe makes its container ready and unready.
func testReadiness(t *testing.T, n *node.Node) {
	const often = "periodSeconds: 1, failureThreshold: 1}"
	kinds := []string{"http", "tcp", "grpc", "exec"}
	n.Write("r.yaml", toolPod(n, "r", containers(
		tool("http", "act -http :8080 -well /diary/well", "ports: [{name: site, containerPort: 8080}]",
			"readinessProbe: {httpGet: {port: site, path: /guarded, httpHeaders: [{name: X-Ship, value: deckhand}]}, "+often),
		tool("tcp", "act -tcp :8081 -well /diary/well", "readinessProbe: {tcpSocket: {port: 8081}, "+often),
		tool("grpc", "act -grpc :8082 -well /diary/well", "readinessProbe: {grpc: {port: 8082, service: ship}, "+often),
		tool("exec", "act", "readinessProbe: {exec: {command: [tools, check, /diary/well]}, "+often))))
	all := func(ready bool) []node.Condition {
		list := []node.Condition{node.Phase("r", v1.PodRunning), hasCondition("r", v1.PodReady, v1.ConditionTrue, ""), hasCondition("r", v1.ContainersReady, v1.ConditionTrue, "")}
		if !ready {
			list = []node.Condition{node.Phase("r", v1.PodRunning), hasCondition("r", v1.PodReady, v1.ConditionFalse, "ContainersNotReady"), hasCondition("r", v1.ContainersReady, v1.ConditionFalse, "ContainersNotReady")}
		}
		for _, kind := range kinds {
			list = append(list, runs("r", kind, 0), readyIs("r", kind, ready))
		}
		return list
	}
	n.Await("nothing is ready", all(false)...)
	for range 2 {
		touch(t, n, "r", "well")
		n.Await("all is ready", all(true)...)
		untouch(t, n, "r", "well")
		n.Await("nothing is ready any more", all(false)...)
	}
	for kind, words := range map[string]string{"http": "statuscode: 503", "tcp": "connection refused", "grpc": "NOT_SERVING", "exec": "isn't there"} {
		n.AwaitEvent("r", "Unhealthy", "{"+kind+"}", "Readiness probe failed", words)
	}
	remove(t, n, "r")
}

// Until the startup probe succeeds there is no liveness probe; after that its
// failure ends the container, with the probe's own grace, and starts it again.
func testStartupAndLiveness(t *testing.T, n *node.Node) {
	n.Write("s.yaml", toolPod(n, "s", "terminationGracePeriodSeconds: 300", containers(
		tool("main", "act -linger 1h",
			"startupProbe: {exec: {command: [tools, check, /diary/up]}, periodSeconds: 1, failureThreshold: 100}",
			"livenessProbe: {exec: {command: [tools, check, /diary/well]}, periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 1}"))))
	n.AwaitEvent("s", "Unhealthy", "{main}", "Startup probe failed")
	s := n.Await("it runs, and isn't started", runs("s", "main", 0), readyIs("s", "main", false))
	if started := status(t, s, "s", "main").Started; started == nil || *started {
		t.Error("it counts as started before its startup probe has succeeded")
	}
	if n.HasEvent("s", "Unhealthy", "Liveness") {
		t.Error("there was a liveness probe before the startup probe succeeded")
	}
	touch(t, n, "s", "well", "up")
	n.Await("it is started", node.Ready("s"), runs("s", "main", 0))
	untouch(t, n, "s", "well")
	n.AwaitEvent("s", "Unhealthy", "{main}", "Liveness probe failed")
	n.AwaitEvent("s", "Killing", "{main}", "failed liveness probe, will be restarted")
	n.Await("it was killed and started again", runs("s", "main", 1), lastEnded("s", "main", 137, "Error"))
	n.Await("the next time it waits", waiting("s", "CrashLoopBackOff", "back-off 10s restarting failed container=main"))
	inOrder(t, n, "s", "main started", "main got SIGTERM", "main started", "main got SIGTERM")
	n.Remove("s.yaml")
}

// On the host's network probes and hooks go to the node's address.
func testHostNetworkProbes(t *testing.T, n *node.Node) {
	web, rpc := n.Port(7), n.Port(8)
	n.Write("h.yaml", toolPod(n, "h", "hostNetwork: true", containers(
		tool("main", fmt.Sprintf("act -http 127.0.0.1:%d -grpc 127.0.0.1:%d", web, rpc),
			fmt.Sprintf("readinessProbe: {httpGet: {port: %d, path: /healthz}, periodSeconds: 1}", web),
			fmt.Sprintf("livenessProbe: {grpc: {port: %d}, periodSeconds: 1}", rpc),
			fmt.Sprintf("lifecycle: {preStop: {httpGet: {port: %d, path: '/append?bye'}}}", web)))))
	n.Await("it is ready", node.Ready("h"))
	remove(t, n, "h")
	inOrder(t, n, "h", "main started", "bye", "main got SIGTERM")
}

// A container that is frozen doesn't answer its probe, and is thawed to be ended, by that and with its pod.
func testFrozen(t *testing.T, n *node.Node) {
	n.Write("f.yaml", toolPod(n, "f", "terminationGracePeriodSeconds: 300", containers(
		tool("main", "act", "livenessProbe: {exec: {command: [tools, check, /diary/well]}, periodSeconds: 1, failureThreshold: 2}"))))
	touch(t, n, "f", "well")
	s := n.Await("it runs", node.Ready("f"))
	n.Eventually("it can be told to end", func() error { // not before it says so: it is the first process in its container
		if times(t, n, "f", "main started") == 0 {
			return errors.New("it hasn't started")
		}
		return nil
	})
	uid := string(view(t, s, "f").Pod.UID)
	freeze := func(below ...string) {
		t.Helper()
		if err := n.Freeze(uid, below...); err != nil {
			t.Fatal(err)
		}
	}
	_, id, _ := strings.Cut(status(t, s, "f", "main").ContainerID, "://")
	freeze(id)
	n.AwaitEvent("f", "Unhealthy", "{main}", "Liveness probe failed", "the container is frozen")
	n.Await("it was ended and started again", runs("f", "main", 1), node.Ready("f"))
	inOrder(t, n, "f", "main started", "main got SIGTERM", "main ended", "main started")
	freeze()
	remove(t, n, "f")
}
