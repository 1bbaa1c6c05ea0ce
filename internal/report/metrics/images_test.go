package metrics_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/report/metrics"
)

// The labels are steps of MiB and GiB, though they say MB and GB; a size on a step
// belongs below it.
func TestSizesOfImages(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for _, c := range []struct {
		size int64
		want string
	}{
		{-1, "N/A"}, {0, "N/A"},
		{1, "0-10MB"}, {10 * mib, "0-10MB"},
		{10*mib + 1, "10MB-100MB"}, {100 * mib, "10MB-100MB"},
		{100*mib + 1, "100MB-500MB"}, {500 * mib, "100MB-500MB"},
		{500*mib + 1, "500MB-1GB"}, {gib, "500MB-1GB"},
		{gib + 1, "1GB-5GB"}, {5 * gib, "1GB-5GB"},
		{5*gib + 1, "5GB-10GB"}, {10 * gib, "5GB-10GB"},
		{10*gib + 1, "10GB-20GB"}, {20 * gib, "10GB-20GB"},
		{20*gib + 1, "20GB-30GB"}, {30 * gib, "20GB-30GB"},
		{30*gib + 1, "30GB-40GB"}, {40 * gib, "30GB-40GB"},
		{40*gib + 1, "40GB-60GB"}, {60 * gib, "40GB-60GB"},
		{60*gib + 1, "60GB-100GB"}, {100 * gib, "60GB-100GB"},
		{100*gib + 1, "GT100GB"},
	} {
		m := metrics.New(metrics.Info{})
		m.Images.Pulled(time.Second, c.size)
		if line := fmt.Sprintf("\nkubelet_image_pull_duration_seconds_count{image_size_in_bytes=%q} 1\n", c.want); !strings.Contains(scrape(t, m), line) {
			t.Errorf("%d bytes aren't %s", c.size, c.want)
		}
	}
}

// What never happens isn't there: neither its memory nor its lines.
func TestNothingIsMadeBeforeItHappens(t *testing.T) {
	text := scrape(t, metrics.New(metrics.Info{}))
	for _, name := range []string{"kubelet_image_pull", "kubelet_image_garbage", "kubelet_imagemanager", "kubelet_credential_provider", "kubernetes_feature", "deckhand_events", "deckhand_config_reloads", "storage_operation", "kubelet_volume_stats", "kubelet_volume_metric", "kubelet_evictions"} {
		if strings.Contains(text, name) {
			t.Errorf("%s... is there", name)
		}
	}
}
