package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Pods records the lifecycle of pods.
type Pods struct {
	startDuration, startTotal, startSLI, workerStart, perPod prometheus.Histogram
	worker, sandboxes                                        *prometheus.HistogramVec
	started, startErrors, startedUserns, usernsErrors        prometheus.Counter
	containers, containerErrors, sandboxErrors, ended        *prometheus.CounterVec
	restarted                                                *prometheus.CounterVec
	orphans, sleepsCut                                       prometheus.Counter
}

func newPods(f factory) *Pods {
	// The kubelet's buckets, from its service level objective: pods start within seconds; the slowest take up to an
	// hour.
	start := []float64{0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800,
		2700, 3600}
	return &Pods{
		startDuration: f.histogram("kubelet_pod_start_duration_seconds",
			"Duration in seconds from kubelet seeing a pod for the first time to the pod starting to run", start),
		startTotal: f.histogram("kubelet_pod_start_total_duration_seconds",
			"Duration in seconds to start a pod since creation, including time to pull images and run init containers, "+
				"measured from pod creation timestamp to when all its containers are reported as started and "+
				"observed via watch", start),
		startSLI: f.histogram("kubelet_pod_start_sli_duration_seconds",
			"Duration in seconds to start a pod, excluding time to pull images and run init containers, "+
				"measured from pod creation timestamp to when all its containers are reported as started and "+
				"observed via watch", start),
		perPod: f.histogram("kubelet_containers_per_pod_count", "The number of containers per pod.",
			[]float64{1, 2, 4, 8, 16}),
		sandboxes: f.histogramVec("kubelet_run_podsandbox_duration_seconds",
			"Duration in seconds of the run_podsandbox operations. Broken down by RuntimeClass.Handler.",
			prometheus.DefBuckets, "runtime_handler"),
		sandboxErrors: f.counterVec("kubelet_run_podsandbox_errors_total",
			"Cumulative number of the run_podsandbox operation errors by RuntimeClass.Handler.", "runtime_handler"),
		startedUserns: f.counter("kubelet_started_user_namespaced_pods_total",
			"Cumulative number of pods with user namespaces started. This metric will only be collected on Linux."),
		usernsErrors: f.counter("kubelet_started_user_namespaced_pods_errors_total",
			"Cumulative number of errors when starting pods with user namespaces. This metric will only be collected "+
				"on Linux."),
		orphans: f.counter("kubelet_orphaned_runtime_pods_total",
			"Number of pods that have been detected in the container runtime without being already known to the pod "+
				"worker. "+
				"This typically indicates the kubelet was restarted while a pod was force deleted in the API or in "+
				"the local configuration, which is unusual."),
		ended: f.counterVec("kubelet_terminated_containers_total", "Cumulative number of container terminations.",
			"container_type", "exit_code", "reason"),
		sleepsCut: f.counter("kubelet_sleep_action_terminated_early_total",
			"The number of times lifecycle sleep handler got terminated before it finishes"),
		workerStart: f.histogram("kubelet_pod_worker_start_duration_seconds",
			"Duration in seconds from kubelet seeing a pod to starting a worker.", prometheus.DefBuckets),
		worker: f.histogramVec("kubelet_pod_worker_duration_seconds",
			"Duration in seconds to sync a single pod. Broken down by operation type: create, update, or sync",
			prometheus.DefBuckets, "operation_type"),
		started:     f.counter("kubelet_started_pods_total", "Cumulative number of pods started"),
		startErrors: f.counter("kubelet_started_pods_errors_total", "Cumulative number of errors when starting pods"),
		containers: f.counterVec("kubelet_started_containers_total", "Cumulative number of containers started",
			"container_type"),
		containerErrors: f.counterVec("kubelet_started_containers_errors_total",
			"Cumulative number of errors when starting containers", "container_type", "code"),
		restarted: f.counterVec("kubelet_restarted_pods_total",
			"Number of pods that have been restarted because they were deleted and recreated with the same UID "+
				"while the kubelet was watching them (common for static pods, extremely uncommon for API pods)",
			"static"),
	}
}

// Running records that all containers of a new pod run, with the time since the agent first saw the pod; other is the
// part of that time that image pulls and init containers took. A pod from a manifest counts as created when the agent
// first sees it.
func (p *Pods) Running(sinceSeen, other time.Duration) {
	p.startDuration.Observe(sinceSeen.Seconds())
	p.startTotal.Observe(sinceSeen.Seconds())
	p.startSLI.Observe(max(sinceSeen-other, 0).Seconds())
}

// Added records that a pod with this number of main containers got its worker, with the time since the agent first saw
// the pod.
func (p *Pods) Added(containers int, sinceSeen time.Duration) {
	p.perPod.Observe(float64(containers))
	p.workerStart.Observe(sinceSeen.Seconds())
}

// Orphaned records a pod in the runtime that no source and no worker has.
func (p *Pods) Orphaned() { p.orphans.Inc() }

// SleepCut records that a hook's sleep action was terminated early.
func (p *Pods) SleepCut() { p.sleepsCut.Inc() }

// Decided records the duration of one sync of a pod by its worker.
func (p *Pods) Decided(took time.Duration) { p.worker.WithLabelValues("sync").Observe(took.Seconds()) }

// SandboxStarted records an attempt to start a pod's sandbox with a RuntimeClass's handler, and its duration;
// userns says that the pod has its own user namespace.
func (p *Pods) SandboxStarted(handler string, took time.Duration, userns, failed bool) {
	p.started.Inc()
	p.sandboxes.WithLabelValues(handler).Observe(took.Seconds())
	if userns {
		p.startedUserns.Inc()
	}
	if failed {
		p.startErrors.Inc()
		p.sandboxErrors.WithLabelValues(handler).Inc()
		if userns {
			p.usernsErrors.Inc()
		}
	}
	p.attempt("pod_sandbox", "CreatePodSandboxError", failed)
}

// ContainerStarted records an attempt to start a container. containerType is a pod.ContainerType.
func (p *Pods) ContainerStarted(containerType string, failed bool) {
	p.attempt(containerType, string(pod.ReasonRunContainerError), failed)
}

// ContainerEnded records that a container ended, with the exit code and reason in its status.
func (p *Pods) ContainerEnded(containerType string, exitCode int32, reason string) {
	p.ended.WithLabelValues(containerType, strconv.Itoa(int(exitCode)), reason).Inc()
}

// attempt records an attempt to start a container or sandbox; code is the waiting reason if it failed.
func (p *Pods) attempt(label, code string, failed bool) {
	p.containers.WithLabelValues(label).Inc()
	if failed {
		p.containerErrors.WithLabelValues(label, code).Inc()
	}
}

// Restarted records that a pod was removed from its source and added again with the same UID.
func (p *Pods) Restarted(static bool) { p.restarted.WithLabelValues(staticLabel(static)).Inc() }

// staticLabel returns the value of the kubelet's label static.
func staticLabel(static bool) string {
	if static {
		return "true"
	}
	return ""
}
