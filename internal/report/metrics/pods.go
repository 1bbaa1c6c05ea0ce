package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Pods records what becomes of pods.
type Pods struct {
	startDuration, startTotal, workerStart prometheus.Histogram
	worker                                 *prometheus.HistogramVec
	started, startErrors                   prometheus.Counter
	containers, containerErrors            *prometheus.CounterVec
	restarted                              *prometheus.CounterVec
}

func newPods() *Pods {
	// From the kubelet's service level: pods start within seconds, or take an hour.
	start := []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600}
	return &Pods{
		startDuration: histogram("pod_start_duration_seconds", "Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run", start),
		startTotal: histogram("pod_start_total_duration_seconds", "Duration in seconds to start a pod since creation, including time to pull images and run init containers, "+
			"measured from pod creation timestamp to when all its containers are reported as started and observed via watch", start),
		workerStart: histogram("pod_worker_start_duration_seconds", "Duration in seconds from kubelet seeing a pod to starting a worker.", prometheus.DefBuckets),
		worker: histogramVec("pod_worker_duration_seconds", "Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
			prometheus.DefBuckets, "operation_type"),
		started:         counter("started_pods_total", "Cumulative number of pods started"),
		startErrors:     counter("started_pods_errors_total", "Cumulative number of errors when starting pods"),
		containers:      counterVec("started_containers_total", "Cumulative number of containers started", "container_type"),
		containerErrors: counterVec("started_containers_errors_total", "Cumulative number of errors when starting containers", "container_type", "code"),
		restarted: counterVec("restarted_pods_total", "Number of pods that have been restarted because they were deleted and recreated with the same UID "+
			"while the kubelet was watching them (common for static pods, extremely uncommon for API pods)", "static"),
	}
}

func (p *Pods) collectors() []prometheus.Collector {
	return []prometheus.Collector{
		p.startDuration, p.startTotal, p.workerStart, p.worker,
		p.started, p.startErrors, p.containers, p.containerErrors, p.restarted,
	}
}

// Running records that all containers of a new pod run, this long after the pod was first seen.
// A pod from a manifest is created when it is first seen.
func (p *Pods) Running(sinceSeen time.Duration) {
	p.startDuration.Observe(sinceSeen.Seconds())
	p.startTotal.Observe(sinceSeen.Seconds())
}

// WorkerStarted records how long after it was first seen a pod got its worker.
func (p *Pods) WorkerStarted(d time.Duration) { p.workerStart.Observe(d.Seconds()) }

// Decided records how long a worker took for one look at its pod.
func (p *Pods) Decided(took time.Duration) { p.worker.WithLabelValues("sync").Observe(took.Seconds()) }

// SandboxStarted records an attempt to start a pod's sandbox.
func (p *Pods) SandboxStarted(failed bool) {
	p.started.Inc()
	if failed {
		p.startErrors.Inc()
	}
	p.attempt("pod_sandbox", "CreatePodSandboxError", failed)
}

// ContainerStarted records an attempt to start a container.
func (p *Pods) ContainerStarted(failed bool) {
	p.attempt("container", string(pod.ReasonRunContainerError), failed)
}

// attempt records a start under a label; code is the waiting reason of one that failed.
func (p *Pods) attempt(label, code string, failed bool) {
	p.containers.WithLabelValues(label).Inc()
	if failed {
		p.containerErrors.WithLabelValues(label, code).Inc()
	}
}

// Restarted records that a pod was removed and added again with the same UID.
func (p *Pods) Restarted(static bool) { p.restarted.WithLabelValues(staticLabel(static)).Inc() }

// staticLabel is how the kubelet writes the label static.
func staticLabel(static bool) string {
	if static {
		return "true"
	}
	return ""
}
