package metrics

import (
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// factory makes, registers and describes metrics, so that each is declared once. Its methods must not be called after
// the metrics are served.
type factory struct {
	registry *prometheus.Registry
	// levels counts the metrics with the kubelet's names by their stability level.
	levels map[string]int
	// described lists all metrics that were made; nil if no caller needs the list.
	described *[]Description
}

// declare describes a metric, and returns the factory that makes and registers it.
func (f factory) declare(name, help, kind string, labels []string) promauto.Factory {
	if !strings.HasPrefix(name, "deckhand_") {
		f.levels[level(name)]++
	}
	if f.described != nil {
		*f.described = append(*f.described, Description{name, help, kind, labels})
	}
	return promauto.With(f.registry)
}

func (f factory) counter(name, help string) prometheus.Counter {
	return f.declare(name, help, "counter", nil).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

func (f factory) counterVec(name, help string, labels ...string) *prometheus.CounterVec {
	return f.declare(name, help, "counter", labels).NewCounterVec(
		prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func (f factory) gauge(name, help string) prometheus.Gauge {
	return f.declare(name, help, "gauge", nil).NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

func (f factory) gaugeVec(name, help string, labels ...string) *prometheus.GaugeVec {
	return f.declare(name, help, "gauge", labels).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

// gaugeFunc makes a gauge whose value is computed at each scrape.
func (f factory) gaugeFunc(name, help string, value func() float64) {
	f.declare(name, help, "gauge", nil).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, value)
}

// constant makes a metric that is always 1; the information is in its labels.
func (f factory) constant(name, help string, labels prometheus.Labels) {
	f.declare(name, help, "gauge", slices.Sorted(maps.Keys(labels))).NewGaugeFunc(
		prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return 1 })
}

func (f factory) histogram(name, help string, buckets []float64) prometheus.Histogram {
	return f.declare(name, help, "histogram", nil).NewHistogram(
		prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets})
}

func (f factory) histogramVec(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return f.declare(name, help, "histogram", labels).NewHistogramVec(
		prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
}
