package metrics_test

import (
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
)

var update = flag.Bool("update", false, "write the golden file anew")

func scrape(t *testing.T, m *metrics.Metrics) string {
	t.Helper()
	rec := httptest.NewRecorder()
	m.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if rec.Code != http.StatusOK {
		t.Fatalf("status %d: %s", rec.Code, rec.Body)
	}
	text, err := io.ReadAll(rec.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// only keeps the lines of metrics the agent itself defines.
func only(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		for _, mark := range []string{"kubelet_", "kubernetes_", "deckhand_", "volume_", "storage_operation_", "metrics_total"} {
			if strings.Contains(line, mark) {
				out = append(out, line)
				break
			}
		}
	}
	return strings.Join(out, "")
}

func filled() *metrics.Metrics {
	m := metrics.New(metrics.Info{NodeName: "node-1", Version: "v0.1.0", Build: buildinfo.Info{Commit: "abc+dirty", Time: time.Unix(1700000000, 0), Go: "go1.26", Platform: "linux/amd64"}})
	m.CollectPods(func() metrics.PodCounts {
		return metrics.PodCounts{
			RunningPods:       2,
			Containers:        map[pod.ContainerState]int{pod.ContainerRunning: 3, pod.ContainerExited: 1},
			Desired:           map[bool]int{true: 4, false: 7},
			Active:            map[bool]int{true: 3, false: 6},
			Mirrors:           2,
			InProgressResizes: 1, PendingResizes: map[string]int{"deferred": 2}, EphemeralContainers: 1,
			Working: map[metrics.WorkerState]int{
				{Lifecycle: "sync", Static: true}: 3, {Lifecycle: "terminating", Orphan: true, Static: true}: 1, {Lifecycle: "terminated"}: 5,
			},
		}
	})
	m.Runtime.Operation("create_container", 7*time.Millisecond, nil)
	m.Runtime.Operation("create_container", time.Second, errors.New("no"))
	m.PLEG.Relisted(time.Unix(1700000000, 5e8), 20*time.Millisecond, 0, nil)
	m.PLEG.Relisted(time.Unix(1700000001, 0), 30*time.Millisecond, time.Second, errors.New("no runtime"))
	m.PLEG.EventDiscarded()
	m.PLEG.Stream(nil)
	m.PLEG.Stream(nil)
	m.PLEG.Event(time.Millisecond)
	m.PLEG.Event(2 * time.Millisecond)
	m.PLEG.Stream(errors.New("no stream"))
	m.Pods.Running(700*time.Millisecond, 300*time.Millisecond)
	m.Pods.Added(3, time.Millisecond)
	m.Pods.ContainerEnded("init_container", 0, "Completed")
	m.PLEG.PodRelisted(3 * time.Millisecond)
	m.Pods.Orphaned()
	m.Pods.SleepCut()
	m.Pods.Decided(2 * time.Millisecond)
	m.Pods.SandboxStarted("", 20*time.Millisecond, false, false)
	m.Pods.SandboxStarted("kata", 2*time.Second, true, true)
	m.Pods.ContainerStarted("init_container", false)
	m.Pods.ContainerStarted("container", true)
	m.Pods.Restarted(true)
	fillImages(m)
	fillConfig(m)
	fillVolumes(m)
	fillResources(m)
	return m
}

func fillImages(m *metrics.Metrics) {
	m.Images.Asked("ifnotpresent", "false", "true")
	m.Images.Asked("never", "unknown", "unknown")
	m.Images.Pulled(1500*time.Millisecond, 42_000_000)
	m.Images.Pulled(90*time.Second, 42_000_000)
	m.Images.Pulled(time.Second, 0)
	m.Images.Checked("credentialRecordFound")
	m.Images.Checked("mustAuthenticate")
	m.CollectPullRecords(func() (intents, records int) { return 1, 2 })
	m.Credentials.PluginCalled("ecr", 30*time.Millisecond, false)
	m.Credentials.PluginCalled("ecr", 3*time.Second, true)
	m.CredentialConfig("sha256:abc")
	m.Garbage.ImageCollected("age", 1)
	m.Garbage.ImageCollected("space", 10)
	m.Garbage.ImageCollected("space", 20)
	m.Garbage.RemovedContainer()
	m.Garbage.LogDirsRemoved(3)
	m.CollectJournal(func() int { return 6 })
	m.CollectEvents(func() metrics.EventStats {
		return metrics.EventStats{Taken: 60, Repeated: 5, Combined: 4, Withheld: 3, Dropped: 2, Forgotten: 1}
	})
}

func fillConfig(m *metrics.Metrics) {
	m.Features([]metrics.Feature{{Name: "EnvFiles", Stage: "BETA", On: true}, {Name: "KMSv1", Stage: "DEPRECATED"}, {Name: "MemoryQoS", Stage: "ALPHA"}, {Name: "SidecarContainers", On: true}})
	m.Reloads.Loaded(time.Unix(1700000000, 0))
	m.Reloads.Reloaded(metrics.ReloadApplied, time.Unix(1700000100, 25e7))
	m.Reloads.Reloaded(metrics.ReloadRefused, time.Unix(1700000200, 0))
}

func fillResources(m *metrics.Metrics) {
	m.Resources.Rejected(pod.ReasonNodePorts)
	m.Resources.Preempted("memory")
	m.Resources.ResizeRequested("cpu", "limits", "increase")
	m.Resources.ResizeInfeasible("insufficient_node_allocatable")
	m.Resources.ResizeAccepted("pods_removed")
	m.Resources.Resized(70*time.Millisecond, false)
	m.Resources.Resized(3*time.Second, true)
	m.Resources.Cgroup("create", 3*time.Millisecond)
	m.CgroupVersion(func() int { return 2 })
	m.CollectLogs(func() []metrics.LogUse {
		return []metrics.LogUse{{UID: "1", Namespace: "default", Pod: "web-node-1", Container: "web", Bytes: 8192}}
	})
}

func fillVolumes(m *metrics.Metrics) {
	m.Volumes.Operation("kubernetes.io/empty-dir", metrics.VolumeMount, false, 20*time.Millisecond, false)
	m.Volumes.Operation("kubernetes.io/empty-dir", metrics.VolumeMount, true, 3*time.Second, true)
	m.Volumes.Operation("kubernetes.io/local-volume", metrics.VolumeUnmount, false, 700*time.Second, false)
	m.Volumes.Completed("kubernetes.io/empty-dir", metrics.VolumeMount, 4*time.Second)
	m.Volumes.OrphanCleaned("a", true)
	m.Volumes.OrphanCleaned("a", true)
	m.Volumes.OrphanCleaned("b", true)
	m.Volumes.OrphanCleaned("a", false)
	m.Volumes.OrphanCleaned("c", false)
	for i := range 9 {
		m.Volumes.Reconstructed(i == 4)
	}
	m.Volumes.ImageRequested()
	m.Volumes.ImageRequested()
	m.Volumes.ImageRequested()
	m.Volumes.ImageMounted(true)
	m.Volumes.ImageMounted(false)
	m.Volumes.Measured(metrics.SourceDu, 3*time.Second)
	m.Volumes.Measured(metrics.SourceQuota, time.Millisecond)
	m.Volumes.Measured(metrics.SourceStatfs, time.Millisecond)
	m.CollectVolumes(func() metrics.VolumeCounts {
		return metrics.VolumeCounts{Desired: map[string]int{"kubernetes.io/empty-dir": 3}, Actual: map[string]int{"kubernetes.io/empty-dir": 2, "kubernetes.io/secret": 1}}
	})
	m.CollectVolumeStats(func() []metrics.VolumeStats {
		return []metrics.VolumeStats{
			{Namespace: "default", Claim: "data", Capacity: 1 << 30, Available: 900 << 20, Used: 100 << 20, Inodes: 65536, InodesFree: 65000, InodesUsed: 536},
			{Namespace: "other", Claim: "data", Capacity: 4096, Available: 0, Used: 4096},
		}
	})
	m.CollectPodDisk(func() []metrics.PodDisk {
		return []metrics.PodDisk{{Namespace: "default", Pod: "web-node-1", UID: "1", Bytes: 12 << 20, Inodes: 310}, {Namespace: "default", Pod: "web-node-1", UID: "2", Inodes: 1}}
	})
	m.Evictions.Evicted("emptydirfs.limit")
	m.Evictions.Evicted("emptydirfs.limit")
	m.Evictions.Evicted("ephemeralpodfs.limit")
	m.Evictions.Decided("memory.available", 20*time.Millisecond)
}

// The golden file is the contract with dashboards: names, help, types, labels
// and buckets, checked against the kubelet's metrics reference.
func TestExposition(t *testing.T) {
	got := only(scrape(t, filled()))
	const path = "testdata/metrics.txt"
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("(-want +got); if that is meant, run with -update:\n%s", diff)
	}
}

// TestServedIsDescribed: the reference has each metric of the page, with its type and help.
func TestServedIsDescribed(t *testing.T) {
	described := map[string]bool{}
	for _, d := range metrics.Described() {
		described["# HELP "+d.Name+" "+d.Help+"\n"] = true
		described["# TYPE "+d.Name+" "+d.Type+"\n"] = true
	}
	n := 0
	for line := range strings.Lines(only(scrape(t, filled()))) {
		if strings.HasPrefix(line, "# ") {
			if n++; !described[line] {
				t.Errorf("not described: %s", line)
			}
		}
	}
	if n < 200 {
		t.Errorf("only %d lines about metrics", n)
	}
}

func TestProcessAndGoMetrics(t *testing.T) {
	text := scrape(t, metrics.New(metrics.Info{}))
	for _, name := range []string{"process_resident_memory_bytes ", "process_cpu_seconds_total ", "process_open_fds ", "go_goroutines ", "go_memstats_heap_alloc_bytes "} {
		if !strings.Contains(text, "\n"+name) {
			t.Errorf("%s is missing", name)
		}
	}
}

func TestTwoAgentsInOneProcessDontShare(t *testing.T) {
	a, b := metrics.New(metrics.Info{NodeName: "a"}), metrics.New(metrics.Info{NodeName: "b"})
	a.PLEG.EventDiscarded()
	if text := scrape(t, b); !strings.Contains(text, "\nkubelet_pleg_discard_events 0\n") || strings.Contains(text, `node="a"`) {
		t.Error("one agent's metrics show up in another's")
	}
}

func TestRecordingAllocatesNothing(t *testing.T) {
	m := filled()
	failure := errors.New("no")
	n := testing.AllocsPerRun(100, func() {
		m.Runtime.Operation("create_container", time.Millisecond, failure)
		m.PLEG.Relisted(time.Now(), time.Millisecond, time.Second, nil)
		m.Pods.Decided(time.Millisecond)
		m.Pods.ContainerStarted("container", true)
		m.Images.Asked("always", "true", "true")
		m.Images.Checked("mustAuthenticate")
		m.Volumes.Operation("kubernetes.io/secret", metrics.VolumeMount, false, time.Millisecond, true)
		m.Volumes.Completed("kubernetes.io/secret", metrics.VolumeMount, time.Millisecond)
		m.Volumes.Measured(metrics.SourceDu, time.Millisecond)
	})
	if n > 0 {
		t.Errorf("%v allocations for each round of recording", n)
	}
}

func TestConcurrentRecordingAndScraping(t *testing.T) {
	m := filled()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				m.Runtime.Operation("list_containers", time.Millisecond, nil)
			}
		})
	}
	wg.Go(func() {
		for range 5 {
			scrape(t, m)
		}
	})
	wg.Wait()
	lines := strings.Split(scrape(t, m), "\n")
	if !slices.Contains(lines, `kubelet_runtime_operations_total{operation_type="list_containers"} 400`) {
		t.Error("records were lost")
	}
}

// TestPagesAreWellFormed: Prometheus' own linter finds nothing in the pages, but for names that are the kubelet's.
func TestPagesAreWellFormed(t *testing.T) {
	m := filled()
	m.Checks.Checked("ping", nil)
	m.Probes.Tried(&v1.Pod{}, "c", pod.ProbeLiveness, "successful", time.Second)
	for page, h := range map[string]http.Handler{"/metrics": m.Handler(), "/metrics/probes": m.ProbesHandler(), "/metrics/slis": m.Checks.Handler()} {
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, httptest.NewRequest("GET", page, nil)); w.Body.Len() == 0 {
			t.Errorf("%s is empty", page)
		}
		problems, err := promlint.New(w.Body).Lint()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			if strings.HasPrefix(p.Metric, "deckhand_") || !strings.Contains(string(kubelets(t)), "\n"+p.Metric+" ") {
				t.Errorf("%s: %s: %s", page, p.Metric, p.Text)
			}
		}
	}
}

func kubelets(t *testing.T) []byte {
	t.Helper()
	text, err := os.ReadFile("testdata/kubelet-1.36-metrics.txt")
	if err != nil {
		t.Fatal(err)
	}
	return text
}
