package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// CPUs records which CPUs containers have to themselves.
type CPUs struct {
	requests, errors prometheus.Counter
	shared           prometheus.Gauge
	exclusive        prometheus.Gauge
	byNode           *prometheus.GaugeVec
	aligned, failed  *prometheus.CounterVec
	replans          *prometheus.CounterVec
}

func newCPUs(f factory) *CPUs {
	c := &CPUs{
		requests: f.counter("kubelet_cpu_manager_pinning_requests_total",
			"The number of cpu core allocations which required pinning."),
		errors: f.counter("kubelet_cpu_manager_pinning_errors_total",
			"The number of cpu core allocations which required pinning failed."),
		shared: f.gauge("kubelet_cpu_manager_shared_pool_size_millicores",
			"The size of the shared CPU pool for non-guaranteed QoS pods, in millicores."),
		exclusive: f.gauge("kubelet_cpu_manager_exclusive_cpu_allocation_count",
			"The total number of CPUs exclusively allocated to containers running on this node"),
		byNode: f.gaugeVec("kubelet_cpu_manager_allocation_per_numa",
			"Number of CPUs allocated per NUMA node", "numa_node"),
		aligned: f.counterVec("kubelet_container_aligned_compute_resources_count",
			"Cumulative number of aligned compute resources allocated to containers by alignment type.", "scope",
			"boundary"),
		failed: f.counterVec("kubelet_container_aligned_compute_resources_failure_count",
			"Cumulative number of failures to allocate aligned compute resources to containers by alignment type.",
			"scope", "boundary"),
		replans: f.counterVec("deckhand_resource_state_replans_total",
			"Differences that the agent found between a state file of the kubelet's and the actual assignment.",
			"file", "difference"),
	}
	for _, boundary := range []string{"physical_cpu", "uncore_cache"} {
		c.aligned.WithLabelValues("container", boundary)
		c.failed.WithLabelValues("container", boundary)
	}
	return c
}

// Pinned records that a container was to get CPUs to itself.
func (c *CPUs) Pinned(failed bool) {
	c.requests.Inc()
	if failed {
		c.errors.Inc()
	}
}

// CPUs sets how many CPUs are shared and not reserved, and how many containers have to themselves, by NUMA node.
func (c *CPUs) CPUs(shared int, exclusive map[int]int) {
	c.shared.Set(float64(shared) * 1000)
	all := 0
	for node, n := range exclusive {
		c.byNode.WithLabelValues(strconv.Itoa(node)).Set(float64(n))
		all += n
	}
	c.exclusive.Set(float64(all))
}

// Aligned records whether a container's CPUs are aligned to a boundary.
func (c *CPUs) Aligned(boundary string, ok bool) {
	if ok {
		c.aligned.WithLabelValues("container", boundary).Inc()
	} else {
		c.failed.WithLabelValues("container", boundary).Inc()
	}
}

// Replanned records a difference between the recorded and the actual assignment of CPUs.
func (c *CPUs) Replanned(difference string) {
	c.replans.WithLabelValues("cpu_manager_state", difference).Inc()
}
