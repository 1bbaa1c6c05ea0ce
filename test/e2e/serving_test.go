package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/report/tracing/tracingtest"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

func TestReadOnlyPort(t *testing.T) {
	t.Parallel()
	collector := tracingtest.Collect(t)
	n := node.New(t, binary, node.Options{Config: fmt.Sprintf("tracing: {endpoint: %q, samplingRatePerMillion: 1000000}", collector.Endpoint)})
	n.Start()
	n.Write("a.yaml", pod("a"))
	n.Write("b.yaml", pod("b", "args: [exit, '1']", "spec.restartPolicy: Never"))
	n.Await("one pod runs, one has failed", node.Ready("a"), node.Phase("b", v1.PodFailed))
	if got := podList(t, n, "pods"); !slices.Equal(got, []string{"a-node1 Running", "b-node1 Failed"}) {
		t.Errorf("/pods tells %q", got)
	}
	// The failed pod's sandbox is stopped after its end is reported.
	n.Eventually("only the running pod is reported to run", func() error {
		if got := podList(t, n, "runningpods/"); !slices.Equal(got, []string{"a-node1 "}) {
			return fmt.Errorf("/runningpods/ tells %q", got)
		}
		return nil
	})
	body, status, err := get(n.ReadOnlyURL("metrics"))
	if err != nil || status != http.StatusOK {
		t.Fatalf("/metrics: %d %v", status, err)
	}
	for _, name := range []string{
		"kubelet_node_name", "kubelet_pod_start_duration_seconds_count", "kubelet_pleg_relist_duration_seconds_count",
		"kubelet_pleg_relist_interval_seconds", "kubelet_pleg_last_seen_seconds", "kubelet_runtime_operations_total",
		"kubelet_runtime_operations_duration_seconds", "kubelet_running_pods", "kubelet_running_containers",
		"kubelet_started_pods_total", "kubelet_started_containers_total", "process_resident_memory_bytes", "go_goroutines",
	} {
		if !strings.Contains(body, "\n"+name) {
			t.Errorf("/metrics doesn't have %s", name)
		}
	}
	for _, line := range []string{
		`kubelet_started_containers_total{container_type="container"} 2`, `kubelet_terminated_containers_total{container_type="container",exit_code="1",reason="Error"} 1`,
		"kubelet_containers_per_pod_count_count 2", "kubelet_pod_worker_start_duration_seconds_count 2", "kubelet_orphaned_runtime_pods_total 0",
		`kubelet_run_podsandbox_duration_seconds_count{runtime_handler=""} 2`, `kubelet_cgroup_manager_duration_seconds_count{operation_type="create"} 2`,
	} {
		if !strings.Contains(body, "\n"+line+"\n") {
			t.Errorf("/metrics doesn't have %s", line)
		}
	}
	for _, part := range []string{
		`kubelet_container_log_filesystem_used_bytes{container="web",namespace="default",pod="a-node1",uid="`, "kubelet_pod_start_sli_duration_seconds_count",
		`kubelet_http_requests_total{long_running="false",method="GET",path="pods",server_type="readonly"} `, "kubelet_cgroup_version ", "kubernetes_build_info{",
	} {
		if !strings.Contains(body, "\n"+part) {
			t.Errorf("/metrics doesn't have %s", part)
		}
	}
	n.Eventually("one running pod is counted", answers(n.ReadOnlyURL("metrics"), "\nkubelet_running_pods 1\n"))
	for _, path := range []string{"spec/", "healthz"} {
		if _, status, err := get(n.ReadOnlyURL(path)); err != nil || status != http.StatusOK {
			t.Errorf("/%s: %d %v", path, status, err)
		}
	}
	n.Stop() // which sends what is left
	n.Eventually("what containerd traces is part of the agent's traces", func() error {
		traces := collector.Traces()
		for _, spans := range traces {
			if slices.Contains(spans, "kubelet syncPod") && slices.Contains(spans, "containerd runtime.v1.RuntimeService/RunPodSandbox") {
				return nil
			}
		}
		return fmt.Errorf("%q", traces)
	})
	for trace, spans := range collector.Traces() {
		if !slices.ContainsFunc(spans, func(s string) bool { return strings.HasPrefix(s, "kubelet ") }) {
			t.Errorf("containerd has begun a trace of its own: %s %q", trace, spans)
		}
	}
}

// podList fetches a PodList and tells each pod's name and phase.
func podList(t *testing.T, n *node.Node, path string) []string {
	t.Helper()
	body, status, err := get(n.ReadOnlyURL(path))
	if err != nil || status != http.StatusOK {
		t.Fatalf("/%s: %d %v", path, status, err)
	}
	var list v1.PodList
	if err := json.Unmarshal([]byte(body), &list); err != nil {
		t.Fatalf("/%s: %v", path, err)
	}
	if list.Kind != "PodList" || list.APIVersion != "v1" {
		t.Errorf("/%s is a %s %s, want a v1 PodList", path, list.APIVersion, list.Kind)
	}
	out := make([]string, len(list.Items))
	for i, p := range list.Items {
		out[i] = p.Name + " " + string(p.Status.Phase)
	}
	slices.Sort(out)
	return out
}

// Health says so when the runtime doesn't answer, and when it does again.
func TestHealth(t *testing.T) {
	t.Parallel()
	n := start(t)
	n.Eventually("healthy", answers(n.HealthURL("healthz"), "ok"))
	for _, name := range []string{"ping", "syncloop", "pleg", "runtime"} {
		n.Eventually("check "+name, answers(n.HealthURL("healthz/"+name), "ok"))
	}
	n.SignalContainerd(syscall.SIGSTOP)
	body, status, err := get(n.HealthURL("healthz"))
	if err != nil || status != http.StatusInternalServerError || !strings.Contains(body, "[-]runtime failed: ") || !strings.Contains(body, "[+]ping ok") {
		t.Errorf("with containerd standing still, /healthz answered %d %q: %v", status, body, err)
	}
	if body, status, err := get(n.HealthURL("healthz/runtime")); err != nil || status != http.StatusInternalServerError {
		t.Errorf("with containerd standing still, /healthz/runtime answered %d %q: %v", status, body, err)
	}
	n.Eventually("checks that don't need it are well", answers(n.HealthURL("healthz/ping"), "ok"))
	n.SignalContainerd(syscall.SIGCONT)
	n.Eventually("healthy again", answers(n.HealthURL("healthz?verbose"), "[+]runtime ok"))
	n.Write("a.yaml", pod("a"))
	n.Await("pods run as before", node.Ready("a"))
}

// An image that is nowhere to be had is reported, and tried again; one whose archive
// appears makes its pod run.
func TestImages(t *testing.T) {
	t.Parallel()
	n := node.New(t, binary, node.Options{})
	archive := filepath.Join(n.RootDir, "images", "web.tar")
	real, err := os.Readlink(archive)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(archive); err != nil {
		t.Fatal(err)
	}
	n.Start()
	n.Write("a.yaml", pod("a"))
	n.Write("nowhere.yaml", strings.Replace(pod("nowhere"), node.Image, "127.0.0.1:1/nothing:1", 1))
	n.Write("never.yaml", strings.Replace(pod("never", "imagePullPolicy: Never"), node.Image, "deckhand.local/nothing:1", 1))
	n.Write("wrong.yaml", strings.Replace(pod("wrong"), node.Image, "deckhand.local/UPPER:1", 1))
	n.Await("the reasons are reported",
		waiting("a", "ImagePullBackOff", node.Image), waiting("nowhere", "ImagePullBackOff", "connection refused"),
		waiting("never", "ErrImageNeverPull", "deckhand.local/nothing:1"), waiting("wrong", "InvalidImageName", "UPPER"))
	if err := os.Symlink(real, archive); err != nil {
		t.Fatal(err)
	}
	n.Await("the pod runs once its image is there", node.Ready("a"))
}
