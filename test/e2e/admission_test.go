package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// What the node has no room for, or can't run, has failed for good before anything of it is made; what is beside it
// runs, and a restart of the agent changes neither.
func TestPodsThatAreNotAdmitted(t *testing.T) {
	t.Parallel()
	n := start(t)
	port := fmt.Sprintf("ports: [{containerPort: 80, hostPort: %d}]", n.Port(5))
	n.Write("good.yaml", pod("good", port))
	n.Await("the good pod runs", node.Ready("good"))
	const outOf = "Pod was rejected: Node didn't have enough resource: "
	refused := map[string]struct{ manifest, reason, message string }{
		"memory":   {pod("memory", "resources: {requests: {memory: 900Gi}}"), "OutOfmemory", outOf + "memory, requested: 900Gi, "},
		"cpu":      {pod("cpu", "resources: {requests: {cpu: 10000}}", "spec.initContainers: [{name: first, image: "+node.Image+"}]"), "OutOfcpu", outOf + "cpu, requested: 10k, "},
		"selector": {pod("selector", "spec.nodeSelector: {disk: ssd}"), "NodeAffinity", "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"},
		"port":     {pod("port", port), "NodePorts", "Pod was rejected: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports"},
		"os":       {pod("os", "spec.os: {name: windows}"), "PodOSNotSupported", "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS"},
	}
	for name, r := range refused {
		n.Write(name+".yaml", r.manifest)
	}
	check := func(what string, more ...node.Condition) local.Snapshot {
		t.Helper()
		conditions := append(more, node.Ready("good"))
		for name, r := range refused {
			conditions = append(conditions, failed(name, r.reason, r.message))
		}
		s := n.Await(what, conditions...)
		for name := range refused {
			v := view(t, s, name)
			st := v.Pod.Status
			if len(st.ContainerStatuses)+len(st.InitContainerStatuses) > 0 {
				t.Errorf("%s: pod %s has container statuses: %+v", what, name, st)
			}
			if dirs, _ := filepath.Glob("/sys/fs/cgroup/*/" + n.CgroupRoot + "/kubepods/*/pod" + string(v.Pod.UID)); len(dirs) > 0 {
				t.Errorf("%s: pod %s has control groups %v", what, name, dirs)
			}
		}
		body, _, err := get(n.ReadOnlyURL("pods"))
		if err != nil || strings.Count(body, `"reason":"OutOfmemory"`) != 1 || !strings.Contains(body, outOf+"memory") {
			t.Errorf("%s: /pods says %v %s", what, err, body)
		}
		for id, name := range n.Sandboxes() {
			if name != "good-"+node.Name {
				t.Errorf("%s: pod %s has sandbox %s", what, name, id)
			}
		}
		if list := n.Containers(); len(list) != 1 {
			t.Errorf("%s: there are containers %+v", what, list)
		}
		return s
	}
	before := check("they have failed")
	for name, r := range refused {
		n.AwaitEvent(name, r.reason, strings.TrimPrefix(r.message, "Pod was rejected: "))
	}
	if out, code := n.Deckhand("why", "memory"); code == 0 || !strings.Contains(out, "OutOfmemory") || !strings.Contains(out, "request less") {
		t.Errorf("why says, with code %d:\n%s", code, out)
	}
	if out, code := n.Deckhand("node", "-o", "jsonpath={.allocatable.pods} {.pods[*].name} {.pods[*].requests.pods}"); code != 0 || strings.TrimSpace(out) != "110 good-"+node.Name+" 1" {
		t.Errorf("node says, with code %d: %s", code, out)
	}
	n.Kill()
	n.Start()
	after := check("they stay so", agentIs(n))
	if was, is := containerID(t, before, "good", "web"), containerID(t, after, "good", "web"); was != is {
		t.Errorf("the good pod's container was %s and is %s", was, is)
	}
	n.Write("memory.yaml", pod("memory", "resources: {requests: {memory: 16Mi}}"))
	n.Await("another version of it is let in", node.Ready("memory", "good"))
	n.Remove("memory.yaml")
	n.Await("it can be removed", func(s local.Snapshot) error {
		if node.Find(s, "memory") != nil {
			return fmt.Errorf("it is still there")
		}
		return nil
	})
}

// On a full node a pod that takes another one's place waits until that has ended, and a critical one has the other end.
func TestRoomOnAFullNode(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{})
	n.Configure("maxPods: 1")
	n.Start()
	n.Write("first.yaml", pod("first"))
	n.Await("the first pod runs", node.Ready("first"))
	n.Remove("first.yaml")
	n.Write("second.yaml", pod("second"))
	n.Await("the second pod follows the first", node.Ready("second"), node.Only("second"))
	n.Write("extra.yaml", pod("extra"))
	n.Await("there is no room for another one", failed("extra", "OutOfpods", "requested: 1, used: 1, capacity: 1"), node.Ready("second"))
	n.Write("vital.yaml", pod("vital", "spec.priorityClassName: system-node-critical"))
	s := n.Await("the critical pod takes its place", node.Ready("vital"), preempted("second"))
	if !disrupted(view(t, s, "second").Pod) {
		t.Errorf("the preempted pod isn't a DisruptionTarget: %+v", view(t, s, "second").Pod.Status.Conditions)
	}
	n.AwaitEvent("second", "Preempting", "Preempted in order to admit critical pod")
	n.Kill()
	n.Start()
	n.Await("it stays so", agentIs(n), node.Ready("vital"), preempted("second"), failed("extra", "OutOfpods", ""))
}

// preempted: a pod that ends well when it has to has succeeded, as with a kubelet.
func preempted(pod string) node.Condition {
	return node.Each([]string{pod}, func(v local.PodView) error {
		if st := v.Pod.Status; st.Phase != v1.PodSucceeded || st.Reason != "Preempting" || st.Message != "Preempted in order to admit critical pod" {
			return fmt.Errorf("phase %s, reason %s, message %q", st.Phase, st.Reason, st.Message)
		}
		return nil
	})
}

func disrupted(p *v1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.DisruptionTarget {
			return c.Status == v1.ConditionTrue && c.Reason == v1.PodReasonTerminationByKubelet
		}
	}
	return false
}
