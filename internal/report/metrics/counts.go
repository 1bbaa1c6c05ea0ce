package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// PodCounts are the numbers of pods and containers at one moment.
type PodCounts struct {
	// RunningPods is the number of pods that have a ready sandbox.
	RunningPods int
	// Containers counts the runtime's containers by state.
	Containers map[pod.ContainerState]int
	// Desired counts the pods that the sources assign to this node, Active those desired pods that run or may still
	// run. The key says whether they are static.
	Desired, Active map[bool]int
	// Mirrors counts the static pods that have a mirror pod.
	Mirrors int
	// InProgressResizes and PendingResizes count pods; PendingResizes by the reason, "deferred" or "infeasible".
	InProgressResizes int
	PendingResizes    map[string]int
	// EphemeralContainers counts those in the desired pods.
	EphemeralContainers int
	// Working counts the pods that have a worker, by the worker's state.
	Working map[WorkerState]int
}

// WorkerState is the state of a pod's worker in the kubelet's terms.
type WorkerState struct {
	// Lifecycle is "sync", "terminating" or "terminated".
	Lifecycle string
	// Orphan says that no source has the pod any more.
	Orphan bool
	// Static says that the pod isn't from an API server.
	Static bool
}

// podCollector computes the counts at each scrape, so that no gauges have to be kept up to date.
type podCollector struct {
	count func() PodCounts

	runningPods, runningContainers, desired, active, working, inProgress, pending, ephemeral, mirrors *prometheus.Desc
}

func newPodCollector(count func() PodCounts) *podCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("", subsystem, name), help, labels, nil)
	}
	return &podCollector{
		count:             count,
		runningPods:       desc("running_pods", "Number of pods that have a running pod sandbox"),
		runningContainers: desc("running_containers", "Number of containers currently running", "container_state"),
		desired: desc("desired_pods",
			"The number of pods the kubelet is being instructed to run. static is true if the pod is not from the "+
				"apiserver.", "static"),
		active: desc("active_pods",
			"The number of pods the kubelet considers active and which are being considered when admitting new pods. "+
				"static is true if the pod is not from the apiserver.", "static"),
		inProgress: desc("pod_in_progress_resizes", "Number of in-progress resizes for pods."),
		pending:    desc("pod_pending_resizes", "Number of pending resizes for pods.", "reason"),
		ephemeral: desc("managed_ephemeral_containers",
			"Current number of ephemeral containers in pods managed by this kubelet."),
		mirrors: desc("mirror_pods",
			"The number of mirror pods the kubelet will try to create (one per admitted static pod)"),
		working: desc("working_pods",
			"Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is "+
				"desired, orphaned, "+
				"or runtime only (also orphaned), and whether the pod is static. An orphaned pod has been removed "+
				"from local configuration or force deleted "+
				"in the API and consumes resources that are not otherwise visible.", "lifecycle", "config", "static"),
	}
}

// Describe implements prometheus.Collector.
func (c *podCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.runningPods, c.runningContainers, c.desired, c.active, c.working,
		c.inProgress, c.pending, c.ephemeral, c.mirrors} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *podCollector) Collect(ch chan<- prometheus.Metric) {
	n := c.count()
	gauge := func(d *prometheus.Desc, value int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(value), labels...)
	}
	gauge(c.runningPods, n.RunningPods)
	for state, label := range containerStates() {
		gauge(c.runningContainers, n.Containers[state], label)
	}
	gauge(c.inProgress, n.InProgressResizes)
	for _, reason := range []string{"deferred", "infeasible"} {
		gauge(c.pending, n.PendingResizes[reason], reason)
	}
	gauge(c.ephemeral, n.EphemeralContainers)
	gauge(c.mirrors, n.Mirrors)
	for _, static := range []bool{false, true} {
		gauge(c.desired, n.Desired[static], staticLabel(static))
		gauge(c.active, n.Active[static], staticLabel(static))
	}
	for _, lifecycle := range []string{"sync", "terminating", "terminated"} {
		for _, static := range []bool{false, true} {
			gauge(c.working, n.Working[WorkerState{lifecycle, false, static}], lifecycle,
				"desired", staticLabel(static))
			gauge(c.working, n.Working[WorkerState{lifecycle, true, static}], lifecycle, "orphan", staticLabel(static))
		}
		// Each pod in the runtime gets a worker, so no pod is runtime_only.
		gauge(c.working, 0, lifecycle, "runtime_only", "unknown")
	}
}

// containerStates maps states to values of the label container_state.
func containerStates() map[pod.ContainerState]string {
	return map[pod.ContainerState]string{
		pod.ContainerCreated: "created",
		pod.ContainerRunning: "running",
		pod.ContainerExited:  "exited",
		pod.ContainerUnknown: "unknown",
	}
}
