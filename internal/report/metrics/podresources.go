package metrics

import "github.com/prometheus/client_golang/prometheus"

// PodResources records calls of the pod resources API.
type PodResources struct {
	all              *prometheus.CounterVec
	requests, errors map[string]*prometheus.CounterVec
}

func newPodResources(f factory) *PodResources {
	const name, version = "kubelet_pod_resources_endpoint_", "server_api_version"
	p := &PodResources{
		all: f.counterVec(name+"requests_total",
			"Cumulative number of requests to the PodResource endpoint. Broken down by server api version.", version),
		requests: map[string]*prometheus.CounterVec{}, errors: map[string]*prometheus.CounterVec{},
	}
	for call, suffix := range map[string]string{"List": "list", "Get": "get",
		"GetAllocatableResources": "get_allocatable"} {
		p.requests[call] = f.counterVec(name+"requests_"+suffix,
			"Number of requests to the PodResource "+call+" endpoint. Broken down by server api version.", version)
		p.errors[call] = f.counterVec(name+"errors_"+suffix,
			"Number of requests to the PodResource "+call+" endpoint which returned error. Broken down by server api "+
				"version.", version)
	}
	return p
}

// Asked records a call of List, Get or GetAllocatableResources, by the version of the API.
func (p *PodResources) Asked(version, call string, err error) {
	p.all.WithLabelValues(version).Inc()
	p.requests[call].WithLabelValues(version).Inc()
	if err != nil {
		p.errors[call].WithLabelValues(version).Inc()
	}
}
