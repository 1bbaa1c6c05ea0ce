package cluster_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// autoscaled starts metrics-server with the rights that its manifests give it, and a Deployment that is to be scaled by what it measures: it takes two looks.
func (r *rig) autoscaled() {
	r.t.Helper()
	download := exec.CommandContext(r.t.Context(), "go", "mod", "download", "-json", "sigs.k8s.io/metrics-server")
	download.Dir = "../kubernetes"
	out, err := download.Output()
	var module struct{ Dir string }
	if err == nil {
		err = json.Unmarshal(out, &module)
	}
	if err != nil {
		r.t.Fatalf("find metrics-server's manifests: %v: %s", err, out)
	}
	r.kubectl("apply", "-f", filepath.Join(module.Dir, "manifests/base/rbac.yaml"))
	// It may use 5 times what it requests, and does.
	busy := fmt.Sprintf("{terminationGracePeriodSeconds: 1, containers: [{name: c, image: %s, args: [clock, /clock, 1ns], resources: {requests: {cpu: 20m}, limits: {cpu: 100m}}}]}", node.Image)
	r.apply(workload("Deployment", "busy", "replicas: 1,", busy) + manifest("autoscaling/v2", "HorizontalPodAutoscaler", "name: busy",
		"{scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: busy}, maxReplicas: 2, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}"))
	r.kubectl("wait", "--for=condition=Available", "deployment/busy", "--timeout=60s")
	r.p.StartMetricsServer()
}

// measured: metrics-server, with no more rights than its manifests give it, gets from the node what kubectl top and a HorizontalPodAutoscaler go by.
func (r *rig) measured() {
	r.t.Helper()
	r.kubectl("wait", "--for=condition=ScalingActive", "hpa/busy", "--timeout=60s")
	quantity := func(text string) float64 {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			r.t.Errorf("%q: %v", text, err)
		}
		return q.AsApproximateFloat64()
	}
	pods := r.kubectl("top", "pods", "--containers", "--no-headers", "-l", "app=busy")
	// Its CPU limit holds, to what one of the kernel's periods gives too much; its memory is that of a small program.
	if f := strings.Fields(pods); len(f) < 4 || f[1] != "c" || quantity(f[2]) < .01 || quantity(f[2]) > .13 || quantity(f[3]) < 100_000 || quantity(f[3]) > 100_000_000 {
		r.t.Errorf("kubectl top pods --containers: %s", pods)
	}
	nodes := r.kubectl("top", "nodes", "--no-headers")
	if f := strings.Fields(nodes); len(f) < 5 || f[0] != r.name || quantity(f[1]) < .01 || quantity(f[3]) < 10_000_000 {
		r.t.Errorf("kubectl top nodes: %s", nodes)
	}
	r.t.Logf("kubectl top:\n%s%s", pods, nodes)
	r.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "deployment/busy", "--timeout=60s")
	r.kubectl("delete", "hpa,deployment", "busy", "--cascade=foreground", "--timeout=60s")
	r.p.StopMetricsServer()
}
