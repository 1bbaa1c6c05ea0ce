package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Resources records the allocation of the node's resources: admission, preemption, resizes and cgroups.
type Resources struct {
	rejections, preemptions *prometheus.CounterVec

	requested, infeasible, accepted *prometheus.CounterVec
	resize                          *prometheus.HistogramVec

	cgroups *prometheus.HistogramVec
}

func newResources(f factory) *Resources {
	return &Resources{
		rejections: f.counterVec("kubelet_admission_rejections_total",
			"Cumulative number of pods that the node didn't admit, by reason.", "reason"),
		preemptions: f.counterVec("kubelet_preemptions", "Cumulative number of pod preemptions by preemption resource",
			"preemption_signal"),
		requested: f.counterVec("kubelet_container_requested_resizes_total",
			"Number of requested resizes, counted at the container level. "+
				"Different resources of the same container are counted separately.", "resource", "requirement",
			"operation"),
		infeasible: f.counterVec("kubelet_pod_infeasible_resizes_total", "Number of infeasible resizes for pods.",
			"reason_detail"),
		accepted: f.counterVec("kubelet_pod_deferred_accepted_resizes_total",
			"Cumulative number of resizes that were accepted after being deferred.", "retry_trigger"),
		resize: f.histogramVec("kubelet_pod_resize_duration_milliseconds",
			"Duration in milliseconds to actuate a pod resize",
			[]float64{10, 50, 100, 500, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000},
			"success"),
		cgroups: f.histogramVec("kubelet_cgroup_manager_duration_seconds",
			"Duration in seconds for cgroup manager operations. Broken down by method.",
			prometheus.DefBuckets, "operation_type"),
	}
}

// Rejected records that the node didn't admit a pod, with the reason in the pod's status.
func (r *Resources) Rejected(reason pod.Reason) { r.rejections.WithLabelValues(string(reason)).Inc() }

// Preempted records that a pod is preempted because another pod needs a resource such as "memory".
func (r *Resources) Preempted(resource string) { r.preemptions.WithLabelValues(resource).Inc() }

// ResizeRequested records an edit of a container's "requests" or "limits" (requirement) of "cpu" or "memory"
// (resource). operation is "add", "remove", "increase" or "decrease".
func (r *Resources) ResizeRequested(resource, requirement, operation string) {
	r.requested.WithLabelValues(resource, requirement, operation).Inc()
}

// ResizeInfeasible records that the node can't satisfy a pod's resize; detail is the reason, such as
// "insufficient_node_allocatable".
func (r *Resources) ResizeInfeasible(detail string) { r.infeasible.WithLabelValues(detail).Inc() }

// ResizeAccepted records that a deferred resize was allocated; trigger is the event that made it possible.
func (r *Resources) ResizeAccepted(trigger string) { r.accepted.WithLabelValues(trigger).Inc() }

// Resized records the time from the allocation of a resize until it was actuated or failed.
func (r *Resources) Resized(took time.Duration, failed bool) {
	r.resize.WithLabelValues(strconv.FormatBool(!failed)).Observe(float64(took) / float64(time.Millisecond))
}

// Cgroup records an operation on a pod's cgroup: "create", "update" or "destroy".
func (r *Resources) Cgroup(operation string, took time.Duration) {
	r.cgroups.WithLabelValues(operation).Observe(took.Seconds())
}

// CgroupVersion registers the host's cgroup version, 1 or 2, which version returns at each scrape. It may be called
// once.
func (m *Metrics) CgroupVersion(version func() int) {
	m.factory.gaugeFunc("kubelet_cgroup_version", "cgroup version on the hosts.",
		func() float64 { return float64(version()) })
}
