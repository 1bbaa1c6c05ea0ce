package metrics

import "github.com/deckhand-node/deckhand/internal/pod"

// PodCounts are the numbers of pods and containers at one moment.
type PodCounts struct {
	// RunningPods is the number of pods that have a ready sandbox.
	RunningPods int
	// Containers counts the runtime's containers by state.
	Containers map[pod.ContainerState]int
	// Desired counts the pods that the sources assign to this node, Active those desired pods that run or may still
	// run. The key says whether the pods are static.
	Desired, Active map[bool]int
	// Mirrors counts the static pods that have a mirror pod.
	Mirrors int
	// InProgressResizes and PendingResizes count pods; PendingResizes by the reason, "deferred" or "infeasible".
	InProgressResizes int
	PendingResizes    map[string]int
	// EphemeralContainers counts the ephemeral containers in the desired pods.
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

// CollectPods registers the numbers of pods and containers, which count returns at each scrape. It may be called
// once; count must not block.
func (m *Metrics) CollectPods(count func() PodCounts) {
	collect(m.factory, count,
		gauge("kubelet_running_pods", "Number of pods that have a running pod sandbox",
			func(n PodCounts) int { return n.RunningPods }),
		gaugeVec("kubelet_running_containers", "Number of containers currently running",
			func(n PodCounts, add series) {
				for state, label := range containerStates() {
					add(float64(n.Containers[state]), label)
				}
			}, "container_state"),
		byStatic("kubelet_desired_pods",
			"The number of pods the kubelet is being instructed to run. static is true if the pod is not from the "+
				"apiserver.", func(n PodCounts) map[bool]int { return n.Desired }),
		byStatic("kubelet_active_pods",
			"The number of pods the kubelet considers active and which are being considered when admitting new pods. "+
				"static is true if the pod is not from the apiserver.",
			func(n PodCounts) map[bool]int { return n.Active }),
		gauge("kubelet_pod_in_progress_resizes", "Number of in-progress resizes for pods.",
			func(n PodCounts) int { return n.InProgressResizes }),
		gaugeVec("kubelet_pod_pending_resizes", "Number of pending resizes for pods.",
			func(n PodCounts, add series) {
				for _, reason := range []string{"deferred", "infeasible"} {
					add(float64(n.PendingResizes[reason]), reason)
				}
			}, "reason"),
		gauge("kubelet_managed_ephemeral_containers",
			"Current number of ephemeral containers in pods managed by this kubelet.",
			func(n PodCounts) int { return n.EphemeralContainers }),
		gauge("kubelet_mirror_pods",
			"The number of mirror pods the kubelet will try to create (one per admitted static pod)",
			func(n PodCounts) int { return n.Mirrors }),
		gaugeVec("kubelet_working_pods",
			"Number of pods the kubelet is actually running, broken down by lifecycle phase, whether the pod is "+
				"desired, orphaned, or runtime only (also orphaned), and whether the pod is static. An orphaned pod "+
				"has been removed from local configuration or force deleted in the API and consumes resources that "+
				"are not otherwise visible.", addWorking, "lifecycle", "config", "static"),
	)
}

// byStatic declares a gauge that counts static and other pods separately.
func byStatic(name, help string, pods func(PodCounts) map[bool]int) computed[PodCounts] {
	return gaugeVec(name, help, func(n PodCounts, add series) {
		for _, static := range []bool{false, true} {
			add(float64(pods(n)[static]), staticLabel(static))
		}
	}, "static")
}

// addWorking adds the numbers of pods that have a worker.
func addWorking(n PodCounts, add series) {
	for _, lifecycle := range []string{"sync", "terminating", "terminated"} {
		for _, static := range []bool{false, true} {
			add(float64(n.Working[WorkerState{lifecycle, false, static}]), lifecycle, "desired", staticLabel(static))
			add(float64(n.Working[WorkerState{lifecycle, true, static}]), lifecycle, "orphan", staticLabel(static))
		}
		// Each pod in the runtime gets a worker, so no pod is runtime_only.
		add(0, lifecycle, "runtime_only", "unknown")
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
