// Package metrics defines the agent's metrics, in its own Prometheus registry. If the kubelet has the same metric,
// name, type, labels and buckets are the kubelet's, so that its dashboards and alerts work; see
// https://kubernetes.io/docs/reference/instrumentation/metrics/.
//
// Each area of the agent has a recorder that implements small interfaces of its callers. Recorders are safe for
// concurrent use.
package metrics

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
)

// Info describes the node and the build, which don't change while the agent runs.
type Info struct {
	NodeName string
	// Version is the agent's version, Build the sources and the toolchain from which it was built.
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
	CPUs         *CPUs
	APIClient    *APIClient
	Certificates *Certificates
	Checks       *Checks

	factory factory
}

// New makes the metrics, with all counters at zero.
func New(info Info) *Metrics { return newMetrics(info, nil) }

// newMetrics makes the metrics; described, if it isn't nil, will list them.
func newMetrics(info Info, described *[]Description) *Metrics {
	f := factory{prometheus.NewRegistry(), map[string]int{}, described}
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
		CPUs:         newCPUs(f),
		APIClient:    newAPIClient(f),
		Certificates: newCertificates(f),
		Checks:       newChecks(),
		factory:      f,
	}
	f.registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		collectors.NewGoCollector())
	f.constant("kubelet_node_name", "The node's name. The count is always 1.", prometheus.Labels{"node": info.NodeName})
	f.constant("deckhand_build_info", "Versions of deckhand and of Go. The count is always 1.",
		prometheus.Labels{"version": info.Version, "goversion": info.Build.Go})
	kubernetesBuild(f, info.Build)
	stability(f)
	return m
}

// CredentialConfig reports a hash ("sha256:...") of the configuration of credential provider plugins. It may be
// called once, and only if there is one.
func (m *Metrics) CredentialConfig(hash string) {
	m.factory.constant("kubelet_credential_provider_config_info",
		"Information about the last applied credential provider configuration with hash as label",
		prometheus.Labels{"hash": hash})
}

// Handler serves the metrics in the text format.
func (m *Metrics) Handler() http.Handler { return handler(m.factory.registry) }

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
		// A compressor would use far more memory than compression would save.
		DisableCompression: true,
	})
}
