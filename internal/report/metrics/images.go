package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Images records image pulls, and the checks whether pods may use images that are present.
type Images struct {
	requests *prometheus.CounterVec
	pulls    *prometheus.HistogramVec
	checks   *prometheus.CounterVec
}

func newImages(f factory) *Images {
	return &Images{
		requests: f.counterVec("kubelet_image_manager_ensure_image_requests_total",
			"Number of ensure-image requests processed by the kubelet.",
			"pull_policy", "present_locally", "pull_required"),
		// A histogram uses memory for a label value only after the first pull with this value.
		pulls: f.histogramVec("kubelet_image_pull_duration_seconds", "Duration in seconds to pull an image.",
			[]float64{1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
			"image_size_in_bytes"),
		checks: f.counterVec("kubelet_imagemanager_image_mustpull_checks_total",
			"Counter for how many times kubelet checked whether credentials need to be re-verified to access an image",
			"result"),
	}
}

// Asked records a request for an image. The policy is always, ifnotpresent or never; present says whether the image
// was on the node, pull whether it had to be pulled: each is true, false or unknown.
func (i *Images) Asked(policy, present, pull string) {
	i.requests.WithLabelValues(policy, present, pull).Inc()
}

// Pulled records a successful pull. size is the image's size in bytes; 0 if it isn't available.
func (i *Images) Pulled(took time.Duration, size int64) {
	i.pulls.WithLabelValues(sizeLabel(size)).Observe(took.Seconds())
}

// Checked records the result of the check whether a pod may use an image that is present: credentialPolicyAllowed,
// credentialRecordFound, mustAuthenticate or error (KEP-2535).
func (i *Images) Checked(result string) { i.checks.WithLabelValues(result).Inc() }

const (
	mib = 1 << 20
	gib = 1 << 30
)

// sizes are the values of the label image_size_in_bytes, except the values for unknown sizes and for sizes above the
// last one.
var sizes = [...]struct {
	atMost int64 // in bytes
	label  string
}{
	{10 * mib, "0-10MB"},
	{100 * mib, "10MB-100MB"},
	{500 * mib, "100MB-500MB"},
	{1 * gib, "500MB-1GB"},
	{5 * gib, "1GB-5GB"},
	{10 * gib, "5GB-10GB"},
	{20 * gib, "10GB-20GB"},
	{30 * gib, "20GB-30GB"},
	{40 * gib, "30GB-40GB"},
	{60 * gib, "40GB-60GB"},
	{100 * gib, "60GB-100GB"},
}

// sizeLabel returns the label for an image size in bytes.
func sizeLabel(size int64) string {
	if size <= 0 {
		return "N/A"
	}
	for _, s := range sizes {
		if size <= s.atMost {
			return s.label
		}
	}
	return "GT100GB"
}

// pullCounts are the numbers of pull intents and records on disk.
type pullCounts struct{ intents, records int }

// CollectPullRecords registers the numbers of pull intents and pulled-image records on disk (KEP-2535), which count
// returns at each scrape. It may be called once, and only if there are such records; count must not block.
func (m *Metrics) CollectPullRecords(count func() (intents, records int)) {
	collect(m.factory, func() (n pullCounts) { n.intents, n.records = count(); return n },
		gauge("kubelet_imagemanager_ondisk_pullintents", "Number of ImagePullIntents stored on disk.",
			func(n pullCounts) int { return n.intents }),
		gauge("kubelet_imagemanager_ondisk_pulledrecords", "Number of ImagePulledRecords stored on disk.",
			func(n pullCounts) int { return n.records }),
	)
}
