package metrics

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// HTTP records the requests to the agent's API.
type HTTP struct {
	inflight *prometheus.GaugeVec
	total    *prometheus.CounterVec
	duration *prometheus.HistogramVec
}

func newHTTP(f factory) *HTTP {
	labels := []string{"method", "path", "server_type", "long_running"}
	return &HTTP{
		inflight: f.gaugeVec("kubelet_http_inflight_requests", "Number of the inflight http requests", labels...),
		total: f.counterVec("kubelet_http_requests_total",
			"Number of the http requests received since the server started", labels...),
		duration: f.histogramVec("kubelet_http_requests_duration_seconds",
			"Duration in seconds to serve http requests", prometheus.DefBuckets, labels...),
	}
}

// ReadOnly wraps the mux of the read-only port, and records its requests. None of them is long-running.
func (h *HTTP) ReadOnly(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, pattern := mux.Handler(r)
		defer h.startRequest(r.Method, pattern, "readonly", false)()
		mux.ServeHTTP(w, r)
	})
}

// StartRequest records a request to the HTTPS server, for a path or a pattern of http.ServeMux. done has to be called
// when the request ends.
func (h *HTTP) StartRequest(method, path string, longRunning bool) (done func()) {
	return h.startRequest(method, path, "readwrite", longRunning)
}

func (h *HTTP) startRequest(verb, pattern, server string, longRunning bool) (done func()) {
	labels := []string{method(verb), path(pattern), server, strconv.FormatBool(longRunning)}
	h.total.WithLabelValues(labels...).Inc()
	inflight, began := h.inflight.WithLabelValues(labels...), time.Now()
	inflight.Inc()
	return func() {
		inflight.Dec()
		h.duration.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
	}
}

// method and path convert what clients send to a limited number of label values.
func method(name string) string {
	switch name {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions,
		http.MethodPatch, http.MethodConnect, http.MethodTrace:
		return name
	}
	return "other"
}

// path returns the first element of the path in a pattern of http.ServeMux, such as "GET /metrics/probes". Below
// /metrics it returns the whole path.
func path(pattern string) string {
	_, path, found := strings.Cut(pattern, "/")
	if !found {
		return "other"
	}
	if first, rest, _ := strings.Cut(path, "/"); first != "metrics" || rest == "" {
		return first
	}
	return path
}
