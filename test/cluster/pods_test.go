package cluster_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// TestPods: pods of the API server run, their status goes back, and they are deleted as they should be.
func TestPods(t *testing.T) {
	binary, err := node.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := plane.Start(t, program)
	t.Run("node", func(t *testing.T) {
		r := join(t, p, binary, "")
		r.Start()
		r.created()
		r.is(v1.ConditionTrue)
		t.Run("one pod", r.onePod)
		t.Run("deployment", r.deployment)
	})
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
}

// apply has the API server have what a manifest says.
func (r *rig) apply(manifest string) {
	r.t.Helper()
	if out, err := r.p.Kubectl(manifest, "apply", "-f", "-"); err != nil {
		r.t.Fatalf("kubectl apply: %v\n%s\n%s", err, out, manifest)
	}
}

// spec is that of a pod with one container, whose arguments these are; fields are of the pod's spec.
func spec(args, fields string) string {
	return fmt.Sprintf("{automountServiceAccountToken: false, %s containers: [{name: c, image: %s, args: %s}]}", fields, node.Image, args)
}

func podNamed(name, args, fields string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: %s}\n", name, spec(args, fields))
}

// pod is a pod as the API server has it.
func (r *rig) pod(name string) *v1.Pod {
	r.t.Helper()
	var p v1.Pod
	if err := json.Unmarshal([]byte(r.kubectl("get", "pod", name, "-o", "json")), &p); err != nil {
		r.t.Fatal(err)
	}
	return &p
}

func (r *rig) onePod(t *testing.T) {
	_, from := r.calls(0)
	r.apply(podNamed("one", "[serve]", ""))
	r.kubectl("wait", "--for=condition=Ready", "pod/one", "--timeout=60s")
	p := r.pod("one")
	if p.Status.Phase != v1.PodRunning || p.Status.PodIP == "" || p.Status.HostIP == "" || p.Status.ObservedGeneration != p.Generation {
		t.Errorf("status %+v", p.Status)
	}
	count, from := r.calls(from)
	if n := count["patch pods/status"]; n < 1 || n > 2 || count["get pods"] > 0 || count["update pods/status"] > 0 {
		t.Errorf("calls until it ran: %v", count)
	}
	r.kubectl("delete", "pod", "one", "--grace-period=1", "--timeout=60s")
	count, _ = r.calls(from)
	if n := count["patch pods/status"]; n < 1 || n > 2 || count["delete pods"] != 1 || count["get pods"] > 0 {
		t.Errorf("calls until it was gone: %v", count)
	}
}

func (r *rig) deployment(t *testing.T) {
	r.apply(fmt.Sprintf(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 5, selector: {matchLabels: {app: web}},
  template: {metadata: {labels: {app: web}}, spec: %s}}}`, spec("[serve]", "terminationGracePeriodSeconds: 1,")))
	r.kubectl("rollout", "status", "deployment/web", "--timeout=60s")
	r.kubectl("set", "env", "deployment/web", "VERSION=2")
	r.kubectl("rollout", "status", "deployment/web", "--timeout=120s")
	r.kubectl("scale", "deployment/web", "--replicas=1")
	r.Eventually("one pod is left", func() error {
		if names := strings.Fields(r.kubectl("get", "pods", "-l", "app=web", "-o", "name")); len(names) != 1 {
			return fmt.Errorf("%v", names)
		}
		return nil
	})
	r.kubectl("delete", "deployment", "web", "--cascade=foreground", "--timeout=60s")
}
