// Package metrics defines the agent's metrics, in a Prometheus registry of its own. Names, types, labels and
// buckets are the kubelet's where it has the same metric, so that its dashboards and alerts work; see
// https://kubernetes.io/docs/reference/instrumentation/metrics/.
//
// Each area of the agent has a recorder that implements small interfaces of its callers. Recorders are safe for
// concurrent use.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
)

// subsystem is the prefix of the kubelet's metric names.
const subsystem = "kubelet"

// Info describes the node and the build, which don't change while the agent runs.
type Info struct {
	NodeName string
	// Version is the agent's version, Build the sources and the toolchain it was built with.
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
	// PodResources records requests to the pod resources socket.
	PodResources *PodResources
	Devices      *Devices
	APIClient    *APIClient
	Certificates *Certificates
	Checks       *Checks

	registry *registry
}

// New makes the metrics, with all counters at zero.
func New(info Info) *Metrics {
	r := &registry{Registry: prometheus.NewRegistry(), levels: map[string]int{}}
	f := factory{promauto.With(r)}
	m := &Metrics{
		Runtime:      newRuntime(f),
		PLEG:         newPLEG(f),
		Pods:         newPods(f),
		Probes:       newProbes(f),
		Images:       newImages(f),
		Credentials:  newCredentials(f),
		Garbage:      newGarbage(f),
		Reloads:      newReloads(f),
		Volumes:      newVolumes(f),
		Evictions:    newEvictions(f),
		Resources:    newResources(f),
		HTTP:         newHTTP(f),
		PodResources: newPodResources(f),
		Devices:      newDevices(f),
		APIClient:    newAPIClient(f),
		Certificates: newCertificates(f),
		Checks:       newChecks(),
		registry:     r,
	}
	r.MustRegister(
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector(),
		constant("kubelet_node_name",
			"The node's name. The count is always 1.", prometheus.Labels{"node": info.NodeName}),
		constant("deckhand_build_info", "Versions of deckhand and of Go. The count is always 1.",
			prometheus.Labels{"version": info.Version, "goversion": info.Build.Go}),
		kubernetesBuild(info.Build),
	)
	r.MustRegister(newStability(r))
	return m
}

// constant returns a metric that is always 1; the information is in its labels.
func constant(name, help string, labels prometheus.Labels) prometheus.Collector {
	return prometheus.NewGaugeFunc(
		prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels},
		func() float64 { return 1 },
	)
}

// CollectPods registers the numbers of pods and containers, which count returns at each scrape. It may be called
// once; count must not block.
func (m *Metrics) CollectPods(count func() PodCounts) {
	m.registry.MustRegister(newPodCollector(count))
}

// CollectPullRecords registers the numbers of pull intents and pulled-image records on disk (KEP-2535), which count
// returns at each scrape. It may be called once, and only if there are such records; count must not block.
func (m *Metrics) CollectPullRecords(count func() (intents, records int)) {
	m.registry.MustRegister(newPullRecords(count))
}

// CollectEvents registers the counters of events, which stats returns at each scrape. It may be called once; stats
// must not block.
func (m *Metrics) CollectEvents(stats func() EventStats) {
	m.registry.MustRegister(newEvents(stats))
}

// Features reports the state of the feature gates. It may be called once; names must be unique, and features must
// not change afterwards.
func (m *Metrics) Features(features []Feature) {
	m.registry.MustRegister(newFeatureCollector(features))
}

// CredentialConfig reports a hash ("sha256:...") of the configuration of credential provider plugins. It may be
// called once, and only if there is one.
func (m *Metrics) CredentialConfig(hash string) {
	m.registry.MustRegister(constant("kubelet_credential_provider_config_info",
		"Information about the last applied credential provider configuration with hash as label",
		prometheus.Labels{"hash": hash}))
}

// Handler serves the metrics in the text format.
func (m *Metrics) Handler() http.Handler { return handler(m.registry) }

// ProbesHandler serves only the metrics of probes, like the kubelet's /metrics/probes.
func (m *Metrics) ProbesHandler() http.Handler { return HandlerOf(m.Probes.total, m.Probes.duration) }

// HandlerOf serves only these metrics.
func HandlerOf(list ...prometheus.Collector) http.Handler {
	r := prometheus.NewRegistry()
	r.MustRegister(list...)
	return handler(r)
}

func handler(from prometheus.Gatherer) http.Handler {
	return promhttp.HandlerFor(from, promhttp.HandlerOpts{
		// If a collector fails, the metrics of the others are still served.
		ErrorHandling: promhttp.ContinueOnError,
		// A compressor uses far more memory than it would save.
		DisableCompression: true,
	})
}

// factory makes collectors and registers them. Its own methods make metrics with the kubelet's prefix.
type factory struct{ promauto.Factory }

func (f factory) counter(name, help string) prometheus.Counter {
	return f.NewCounter(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help})
}

func (f factory) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return f.NewCounterVec(prometheus.CounterOpts{Subsystem: subsystem, Name: name, Help: help}, labels)
}

func (f factory) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return f.NewHistogram(histogramOpts(name, help, buckets))
}

func (f factory) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return f.NewHistogramVec(histogramOpts(name, help, buckets), labels)
}

func histogramOpts(name, help string, buckets []float64) prometheus.HistogramOpts {
	return prometheus.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: buckets}
}
