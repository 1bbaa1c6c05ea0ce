package cluster_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// autoscaled starts metrics-server, and a Deployment that is to be scaled by what it measures: it takes two looks.
// It returns Prometheus' first one.
func (r *rig) autoscaled() []plane.Scrape {
	r.t.Helper()
	// It may use 5 times what it requests, and does.
	busy := fmt.Sprintf("{terminationGracePeriodSeconds: 1, containers: [{name: c, image: %s, args: [clock, /clock, 1ns], resources: {requests: {cpu: 20m}, limits: {cpu: 100m}}}]}", node.Image)
	r.apply(workload("Deployment", "busy", "replicas: 1,", busy) + manifest("autoscaling/v2", "HorizontalPodAutoscaler", "name: busy",
		"{scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: busy}, maxReplicas: 2, metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 50}}}]}"))
	r.kubectl("wait", "--for=condition=Available", "deployment/busy", "--timeout=60s")
	r.grant("prometheus", "User", "prometheus", "nodes/metrics")
	scrapes := r.scraped()
	r.p.StartMetricsServer("../kubernetes")
	return scrapes
}

// scraped is what Prometheus gets from the node, with the labels that kube-prometheus gives it, and that kube-state-metrics has of pods.
func (r *rig) scraped() (scrapes []plane.Scrape) {
	r.t.Helper()
	prometheus := pair(r.t, r.p.Issue("prometheus", "prometheus"))
	for _, path := range []string{"/metrics/cadvisor", "/metrics/resource"} {
		code, text := r.asks(path, prometheus, "")
		if code != http.StatusOK {
			r.t.Fatalf("%s: %d %s", path, code, text)
		}
		scrapes = append(scrapes, plane.Scrape{At: time.Now(), Labels: map[string]string{"job": "kubelet", "metrics_path": path, "node": r.name}, Text: text})
	}
	info := r.kubectl("get", "pods", "-l", "app=busy", "-o", `go-template={{range .items}}kube_pod_info{namespace="{{.metadata.namespace}}",pod="{{.metadata.name}}",node="{{.spec.nodeName}}"} 1{{"\n"}}{{end}}`)
	return append(scrapes, plane.Scrape{At: time.Now(), Labels: map[string]string{"job": "kube-state-metrics"}, Text: info})
}

// cadvisor is how kube-prometheus' rules and dashboards pick series of containers.
const cadvisor = `{job="kubelet", metrics_path="/metrics/cadvisor", image!=""}`

// queries are such rules and dashboards' queries, for the containers of Deployment busy, and the least and the most that they may tell. The rates of CPU are
// those between two looks (irate), as there are no 5 minutes of them.
var queries = []struct {
	query       string
	least, most float64
}{
	{`sum by (cluster, namespace, pod, container) (irate(container_cpu_usage_seconds_total` + cadvisor + `[5m]))` + ofNode, .01, .13},
	{`container_memory_working_set_bytes` + cadvisor + ofNode, 1e5, 1e8},
	{`container_memory_rss` + cadvisor + ofNode, 1e4, 1e8},
	{`container_memory_cache` + cadvisor + ofNode, 0, 1e8},
	{`container_memory_swap` + cadvisor + ofNode, 0, 1e8},
	{`sum(increase(container_cpu_cfs_throttled_periods_total{container!="", job="kubelet", metrics_path="/metrics/cadvisor"}[5m])) without (id, metrics_path, name, image, endpoint, job, node)
	  / sum(increase(container_cpu_cfs_periods_total{job="kubelet", metrics_path="/metrics/cadvisor"}[5m])) without (id, metrics_path, name, image, endpoint, job, node)`, .05, 1},
	{`sum by (pod) (rate(container_network_receive_bytes_total{job="kubelet", metrics_path="/metrics/cadvisor", namespace=~".+"}[5m]))`, 0, 1e6},
	{`sum by (pod) (rate(container_network_transmit_packets_total{job="kubelet", metrics_path="/metrics/cadvisor", namespace=~".+"}[5m]))`, 0, 1e4},
	{`sum by (pod) (rate(container_network_receive_packets_dropped_total{job="kubelet", metrics_path="/metrics/cadvisor", namespace=~".+"}[5m]))`, 0, 1e4},
	{`sum by (pod) (container_fs_usage_bytes{job="kubelet", metrics_path="/metrics/cadvisor", container!=""})`, 1, 1e8},
	{`sum by (pod) (increase(container_oom_events_total{job="kubelet", metrics_path="/metrics/cadvisor", container!=""}[5m]))`, 0, 0},
	{`sum by (pod) (irate(container_cpu_usage_seconds_total{metrics_path="/metrics/resource"}[5m]))`, .01, .13},
	{`sum by (pod) (container_memory_working_set_bytes{metrics_path="/metrics/resource"})`, 1e5, 1e8},
	{`sum by (pod) (irate(pod_cpu_usage_seconds_total[5m]))`, .01, .13},
	{`label_replace(sum(irate(node_cpu_usage_seconds_total[5m])), "pod", "busy", "", "")`, .01, 1e3},
	{`label_replace(sum(node_memory_working_set_bytes), "pod", "busy", "", "")`, 1e7, 1e13},
}

// ofNode is the end of kube-prometheus' recording rules.
const ofNode = ` * on (cluster, namespace, pod) group_left(node) topk by (cluster, namespace, pod) (1, max by (cluster, namespace, pod, node) (kube_pod_info{node!=""}))`

// pressure is there on cgroup v2, where the kernel has it.
const pressure = `sum by (pod) (rate(container_pressure_cpu_waiting_seconds_total{job="kubelet", metrics_path="/metrics/cadvisor", container!=""}[5m]))`

// queried: what Prometheus' rules ask for is there, of the pod that was there at both looks.
func (r *rig) queried(first []plane.Scrape) {
	r.t.Helper()
	asked := queries
	_, v2 := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	if _, psi := os.Stat("/proc/pressure/cpu"); v2 == nil && psi == nil {
		asked = append(asked[:len(asked):len(asked)], struct {
			query       string
			least, most float64
		}{pressure, 0, 2})
	}
	var texts []string
	for _, a := range asked {
		texts = append(texts, a.query)
	}
	var told strings.Builder
	for i, result := range r.p.Query(append(first, r.scraped()...), texts...) {
		var values []float64
		for _, s := range result {
			value, err := strconv.ParseFloat(fmt.Sprint(s.Value[1]), 64)
			if strings.HasPrefix(s.Metric["pod"], "busy") && err == nil {
				values = append(values, value)
			}
		}
		a := asked[i]
		if len(values) == 0 || slices.Max(values) < a.least || slices.Max(values) > a.most { // of sandboxes, which have an image, too, it's less
			r.t.Errorf("%s: %v, of %v", a.query, values, result)
		}
		fmt.Fprintf(&told, "%v %.60s\n", values, a.query)
	}
	r.t.Logf("Prometheus:\n%s", told.String())
}

// measured: metrics-server, with no more rights than its manifests give it, gets from the node what kubectl top and a HorizontalPodAutoscaler go by.
func (r *rig) measured(scrapes []plane.Scrape) {
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
	r.queried(scrapes)
	r.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "deployment/busy", "--timeout=60s")
	r.kubectl("delete", "hpa,deployment", "busy", "--cascade=foreground", "--timeout=60s")
	r.p.StopMetricsServer()
}
