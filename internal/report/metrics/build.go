package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
)

// kubernetesBuild makes the metric that describes the build as Kubernetes' programs do. Dashboards group nodes by
// git_version, which is the version of the kubelet that this build replaces.
func kubernetesBuild(f factory, b buildinfo.Info) {
	parts := strings.Split(strings.TrimPrefix(buildinfo.Kubernetes, "v"), ".")
	date := ""
	if !b.Time.IsZero() {
		date = b.Time.UTC().Format("2006-01-02T15:04:05Z")
	}
	commit, dirty := strings.CutSuffix(b.Commit, "+dirty")
	tree := "clean"
	if dirty {
		tree = "dirty"
	}
	f.constant("kubernetes_build_info",
		"A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build "+
			"date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
		prometheus.Labels{
			"major": parts[0], "minor": parts[1], "git_version": buildinfo.Kubernetes, "git_commit": commit,
			"git_tree_state": tree,
			"build_date":     date, "go_version": b.Go, "compiler": "gc", "platform": b.Platform,
		})
}

// stability makes the metrics that count, by Kubernetes' stability levels, the metrics with the kubelet's names. None
// of the counted metrics is deprecated, hidden or disabled.
func stability(f factory) {
	none := func(map[string]int) int { return 0 }
	collect(f, func() map[string]int { return f.levels },
		counterVec("registered_metrics_total",
			"The count of registered metrics broken by stability level and deprecation version.",
			func(levels map[string]int, add series) {
				for level, n := range levels {
					add(float64(n), level, "")
				}
			}, "stability_level", "deprecated_version"),
		counter("hidden_metrics_total", "The count of hidden metrics.", none),
		counter("disabled_metrics_total", "The count of disabled metrics.", none),
	)
}

// level returns the stability level of a metric in Kubernetes 1.36.
func level(name string) string {
	switch name {
	case "disabled_metrics_total", "hidden_metrics_total", "registered_metrics_total", "kubernetes_build_info",
		"kubernetes_feature_enabled", "prober_probe_total",
		"kubelet_image_volume_mounted_errors_total", "kubelet_image_volume_mounted_succeed_total",
		"kubelet_image_volume_requested_total":
		return "BETA"
	}
	return "ALPHA"
}
