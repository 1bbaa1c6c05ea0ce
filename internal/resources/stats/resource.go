package stats

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// scrapeAge is the maximum age of a sample for metrics.
const scrapeAge = time.Second

// scrapeTime is the timeout of a scrape. It is less than Prometheus' default timeout.
const scrapeTime = 8 * time.Second

// collector converts samples to metrics.
type collector struct {
	sampler *Sampler
	level   Level
	descs   []*prometheus.Desc
	collect func(*Sample, chan<- prometheus.Metric)
	// failed sends the metric that reports whether a sample failed.
	failed func(bool, chan<- prometheus.Metric)
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range c.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(c.sampler.walks, scrapeTime)
	defer cancel()
	sample, err := c.sampler.Sample(ctx, c.level, scrapeAge)
	c.failed(err != nil, ch)
	if err == nil {
		c.collect(sample, ch)
	} else {
		c.sampler.Log.Error(err, "Statistics can't be collected")
	}
}

// at returns a metric with the time of its measurement.
func at(when time.Time, d *prometheus.Desc, t prometheus.ValueType, v float64, labels ...string) prometheus.Metric {
	return prometheus.NewMetricWithTimestamp(when, prometheus.MustNewConstMetric(d, t, v, labels...))
}

const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue

// ResourceMetrics returns the metrics of /metrics/resource, which metrics-server reads
// (https://kubernetes.io/docs/reference/instrumentation/node-metrics/). Values that couldn't be read are omitted.
func (s *Sampler) ResourceMetrics() prometheus.Collector {
	c := &collector{sampler: s, level: CPUAndMemory}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		d := prometheus.NewDesc(name, help, labels, nil)
		c.descs = append(c.descs, d)
		return d
	}
	nodeCPU := desc("node_cpu_usage_seconds_total", "Cumulative cpu time consumed by the node in core-seconds")
	nodeMemory := desc("node_memory_working_set_bytes", "Current working set of the node in bytes")
	nodeSwap := desc("node_swap_usage_bytes",
		"Current swap usage of the node in bytes. Reported only on non-windows systems")
	pod := []string{"pod", "namespace"}
	podCPU := desc("pod_cpu_usage_seconds_total", "Cumulative cpu time consumed by the pod in core-seconds", pod...)
	podMemory := desc("pod_memory_working_set_bytes", "Current working set of the pod in bytes", pod...)
	podSwap := desc("pod_swap_usage_bytes",
		"Current amount of the pod swap usage in bytes. Reported only on non-windows systems", pod...)
	container := []string{"container", "pod", "namespace"}
	containerCPU := desc("container_cpu_usage_seconds_total",
		"Cumulative cpu time consumed by the container in core-seconds", container...)
	containerMemory := desc("container_memory_working_set_bytes",
		"Current working set of the container in bytes", container...)
	containerSwap := desc("container_swap_usage_bytes",
		"Current amount of the container swap usage in bytes. Reported only on non-windows systems", container...)
	swapLimit := desc("container_swap_limit_bytes",
		"Current amount of the container swap limit in bytes. Reported only on non-windows systems", container...)
	start := desc("container_start_time_seconds",
		"Start time of the container since unix epoch in seconds", container...)
	failed := desc("resource_scrape_error", "1 if there was an error while getting container metrics, 0 otherwise")
	c.failed = func(yes bool, ch chan<- prometheus.Metric) {
		ch <- prometheus.MustNewConstMetric(failed, gauge, bit(yes))
	}
	c.collect = func(sample *Sample, ch chan<- prometheus.Metric) {
		of := func(g *Group, cpu, memory, swap *prometheus.Desc, labels ...string) {
			if g.CPU != nil {
				ch <- at(g.At, cpu, counter, float64(g.CPU.Usage)/1e9, labels...)
			}
			if g.Memory != nil {
				ch <- at(g.At, memory, gauge, float64(g.Memory.WorkingSet), labels...)
				ch <- at(g.At, swap, gauge, float64(g.Memory.Swap), labels...)
			}
		}
		of(&sample.Node, nodeCPU, nodeMemory, nodeSwap)
		for i := range sample.Pods {
			p := &sample.Pods[i]
			if i > 0 && sample.Pods[i-1].Namespace == p.Namespace && sample.Pods[i-1].Name == p.Name {
				continue // an older pod with the same labels
			}
			of(&p.Group, podCPU, podMemory, podSwap, p.Name, p.Namespace)
			for j := range p.Containers {
				c := &p.Containers[j]
				if j > 0 && p.Containers[j-1].Name == c.Name {
					continue
				}
				of(&c.Group, containerCPU, containerMemory, containerSwap, c.Name, p.Name, p.Namespace)
				ch <- prometheus.MustNewConstMetric(start, gauge, float64(c.Started.UnixNano())/1e9, c.Name, p.Name,
					p.Namespace)
				if c.Memory != nil && c.Memory.SwapLimit != counters.Unlimited {
					ch <- at(c.At, swapLimit, gauge, float64(c.Memory.SwapLimit), c.Name, p.Name, p.Namespace)
				}
			}
		}
	}
	return c
}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
