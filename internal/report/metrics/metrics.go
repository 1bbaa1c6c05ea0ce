// Package metrics holds what the agent counts and times, in a Prometheus
// registry of its own. Names, types, labels and buckets are the kubelet's where
// it has the same thing, so that dashboards and alerts written for it work; see
// https://kubernetes.io/docs/reference/instrumentation/metrics/.
//
// Metrics are given to those who record through recorders, one for each
// concern, whose methods fit small interfaces their users own. All recorders
// may be used by many goroutines.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
)

// subsystem is the first part of every name that is the kubelet's.
const subsystem = "kubelet"

// Info is what never changes while the agent runs.
type Info struct {
	NodeName string
	// Version is the agent's own, Build what it was built from.
	Version string
	Build   buildinfo.Info
}

// Metrics is all the agent's metrics.
type Metrics struct {
	Runtime     *Runtime
	PLEG        *PLEG
	Pods        *Pods
	Probes      *Probes
	Images      *Images
	Credentials *Credentials
	Garbage     *Garbage
	Reloads     *Reloads
	Volumes     *Volumes
	Evictions   *Evictions
	Resources   *Resources
	HTTP        *HTTP
	// PodResources is the socket's of that name.
	PodResources *PodResources
	Devices      *Devices
	APIClient    *APIClient
	Certificates *Certificates
	Checks       *Checks

	registry *registry
}

// New makes the metrics; they start from zero.
func New(info Info) *Metrics {
	m := &Metrics{
		Runtime:      newRuntime(),
		PLEG:         newPLEG(),
		Pods:         newPods(),
		Probes:       newProbes(),
		Images:       newImages(),
		Credentials:  newCredentials(),
		Garbage:      newGarbage(),
		Reloads:      newReloads(),
		Volumes:      newVolumes(),
		Evictions:    newEvictions(),
		Resources:    newResources(),
		HTTP:         newHTTP(),
		PodResources: newPodResources(),
		Devices:      newDevices(),
		APIClient:    newAPIClient(),
		Certificates: newCertificates(),
		Checks:       newChecks(),
		registry:     &registry{Registry: prometheus.NewRegistry(), levels: map[string]int{}},
	}
	m.registry.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
		constant("kubelet_node_name",
			"The node's name. The count is always 1.", prometheus.Labels{"node": info.NodeName}),
		constant("deckhand_build_info", "What the running deckhand was built from. The count is always 1.",
			prometheus.Labels{"version": info.Version, "goversion": info.Build.Go}),
		kubernetesBuild(info.Build),
	)
	m.registry.MustRegister(m.Runtime.collectors()...)
	m.registry.MustRegister(m.PLEG.collectors()...)
	m.registry.MustRegister(m.Pods.collectors()...)
	m.registry.MustRegister(m.Probes.collectors()...)
	m.registry.MustRegister(m.Images.collectors()...)
	m.registry.MustRegister(m.Credentials.collectors()...)
	m.registry.MustRegister(m.Garbage.collectors()...)
	m.registry.MustRegister(m.Reloads.collectors()...)
	m.registry.MustRegister(m.Volumes.collectors()...)
	m.registry.MustRegister(m.Evictions.collectors()...)
	m.registry.MustRegister(m.Resources.collectors()...)
	m.registry.MustRegister(m.HTTP.collectors()...)
	m.registry.MustRegister(m.PodResources.collectors()...)
	m.registry.MustRegister(m.Devices.collectors()...)
	m.registry.MustRegister(m.APIClient.collectors()...)
	m.registry.MustRegister(m.Certificates.collectors()...)
	m.registry.MustRegister(newStability(m.registry))
	return m
}

// constant is a metric that is always 1 and informs by its labels.
func constant(name, help string, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels},
		func() float64 { return 1 },
	)
}

// CollectPods has count called at each scrape for the numbers of pods and
// containers. It is to be called at most once, and count must not block.
func (m *Metrics) CollectPods(count func() PodCounts) {
	m.registry.MustRegister(newPodCollector(count))
}

// CollectPullRecords has count called at each scrape for how many intents to pull
// and records of pulled images are on disk (KEP-2535). It is to be called at most once, and
// not at all where none are kept; count must not block.
func (m *Metrics) CollectPullRecords(count func() (intents, records int)) {
	m.registry.MustRegister(newPullRecords(count))
}

// CollectEvents has stats called at each scrape for what became of events. It is to
// be called at most once, and stats must not block.
func (m *Metrics) CollectEvents(stats func() EventStats) {
	m.registry.MustRegister(newEvents(stats))
}

// Features reports which feature gates are on. It is to be called at most once; no name may
// come twice, and features must not change any more.
func (m *Metrics) Features(features []Feature) {
	m.registry.MustRegister(newFeatureCollector(features))
}

// CredentialConfig reports which configuration of credential provider plugins is in
// effect, by a hash of it such as "sha256:...". It is to be called at most once, and not at
// all where there is none.
func (m *Metrics) CredentialConfig(hash string) {
	m.registry.MustRegister(constant("kubelet_credential_provider_config_info",
		"Information about the last applied credential provider configuration with hash as label",
		prometheus.Labels{"hash": hash}))
}

// Handler serves the metrics in the text format.
func (m *Metrics) Handler() http.Handler { return handler(m.registry) }

// ProbesHandler serves what became of probes alone, by pod and container, which the kubelet has apart: /metrics/probes.
func (m *Metrics) ProbesHandler() http.Handler { return HandlerOf(m.Probes.collectors()...) }

// HandlerOf serves these metrics alone.
func HandlerOf(list ...prometheus.Collector) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(list...)
	return handler(r)
}

func handler(from prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{
		// What can be collected is returned, even if one collector fails.
		ErrorHandling: promhttp.ContinueOnError,
		// Compressors hold far more memory than the text they would shorten.
		DisableCompression: true,
	})
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help})
}

func counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
}

func histogram(name, help string, buckets []float64) prometheus.Histogram {
	return prometheus.NewHistogram(histogramOpts(name, help, buckets))
}

func histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(histogramOpts(name, help, buckets), labels)
}

func histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: buckets}
}
