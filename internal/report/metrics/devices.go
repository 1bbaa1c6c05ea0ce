package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Devices records registrations and allocations of device plugins.
type Devices struct {
	registrations *prometheus.CounterVec
	allocations   *prometheus.HistogramVec
}

func newDevices(f factory) *Devices {
	return &Devices{
		registrations: f.counterVec("kubelet_device_plugin_registration_total",
			"Cumulative number of device plugin registrations. Broken down by resource name.", "resource_name"),
		allocations: f.histogramVec("kubelet_device_plugin_alloc_duration_seconds",
			"Duration in seconds to serve a device plugin Allocation request. Broken down by resource name.",
			prometheus.DefBuckets, "resource_name"),
	}
}

// Registered records that a device plugin has registered for a resource.
func (d *Devices) Registered(resource string) { d.registrations.WithLabelValues(resource).Inc() }

// Allocated records the duration of a plugin's Allocate call.
func (d *Devices) Allocated(resource string, took time.Duration) {
	d.allocations.WithLabelValues(resource).Observe(took.Seconds())
}
