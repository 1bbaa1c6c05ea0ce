package plane

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestPlane: a node may do with the control plane what the table of rights says, and the audit log shows what it did.
func TestPlane(t *testing.T) {
	began := time.Now()
	p := Start(t, "../../../bin/controlplane")
	t.Logf("ready after %s", time.Since(began).Round(time.Millisecond))
	node := p.Node("n1")
	for _, step := range []struct {
		args  string
		input string
		fails string // what the error has in it
	}{
		{args: "create -f -", input: "{apiVersion: v1, kind: Node, metadata: {name: n1}}"},
		{args: "create -f -", input: "{apiVersion: v1, kind: Node, metadata: {name: n2}}", fails: `node "n1" is not allowed to modify node "n2"`},
		{args: "get node n1 -o name"},
		{args: "get pods -A --field-selector spec.nodeName=n1"},
		{args: "get pods -A", fails: "can only list/watch pods with spec.nodeName field selector"},
		{args: "get secrets -A", fails: "can only read namespaced object of this type"},
		{args: "get services -A"},
	} {
		_, err := p.KubectlAs(node, step.input, strings.Fields(step.args)...)
		if (err != nil) != (step.fails != "") || err != nil && !strings.Contains(err.Error(), step.fails) {
			t.Errorf("%s: %v, want %q", step.args, err, step.fails)
		}
	}
	want := []string{"create nodes n2: a node may not", "list pods: a node may not", "list secrets: a node may not"}
	if got := Wrong(p.Calls()); !slices.Equal(got, want) {
		t.Errorf("the audit log shows %q, want %q; in all %v", got, want, p.Calls())
	}
	// The scheduler and the controllers work.
	if _, err := p.Kubectl(`{"status": {"allocatable": {"pods": "10"}, "capacity": {"pods": "10"}}}`, "patch", "node", "n1", "--subresource=status", "--patch-file=/dev/stdin"); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Kubectl(`{apiVersion: v1, kind: Pod, metadata: {name: a}, spec: {containers: [{name: a, image: x}], tolerations: [{operator: Exists}]}}`, "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if out, err := p.Kubectl("", "wait", "--for=jsonpath={.spec.nodeName}=n1", "pod/a", "--timeout=30s"); err != nil {
		t.Errorf("the pod isn't scheduled: %s, %v", out, err)
	}
	if out, err := p.Kubectl("", "wait", "--for=condition=Ready=Unknown", "node/n1", "--timeout=60s"); err != nil {
		t.Errorf("a node without an agent isn't found out: %s, %v", out, err)
	}
}
