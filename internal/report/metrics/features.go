package metrics

import "github.com/prometheus/client_golang/prometheus"

// Feature is a feature gate.
type Feature struct {
	Name string
	// Stage is ALPHA, BETA, DEPRECATED, or empty for a feature that is generally available.
	Stage string
	On    bool
}

// featureCollector makes metrics of the gates at each scrape: hundreds of permanent metrics would take more memory
// than all others.
type featureCollector struct {
	features []Feature
	enabled  *prometheus.Desc
}

func newFeatureCollector(features []Feature) *featureCollector {
	return &featureCollector{
		features: features,
		enabled: prometheus.NewDesc("kubernetes_feature_enabled",
			"This metric records the data about the stage and enablement of a k8s feature.", []string{"name", "stage"},
			nil),
	}
}

// Describe implements prometheus.Collector.
func (c *featureCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.enabled }

// Collect implements prometheus.Collector.
func (c *featureCollector) Collect(ch chan<- prometheus.Metric) {
	for _, f := range c.features {
		value := 0.0
		if f.On {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(c.enabled, prometheus.GaugeValue, value, f.Name, f.Stage)
	}
}
