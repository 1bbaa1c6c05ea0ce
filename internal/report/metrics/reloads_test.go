package metrics_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/internal/report/metrics"
)

// An alert goes by the last reload, and by how long ago one last went well.
func TestReloads(t *testing.T) {
	m := metrics.New(metrics.Info{})
	check := func(when string, success int, at string) {
		t.Helper()
		text := scrape(t, m)
		for _, line := range []string{
			fmt.Sprintf("\ndeckhand_config_last_reload_success %d\n", success),
			fmt.Sprintf("\ndeckhand_config_last_reload_success_timestamp_seconds %s\n", at),
		} {
			if !strings.Contains(text, line) {
				t.Errorf("%s: no %q in\n%s", when, line, only(text))
			}
		}
	}
	check("before the start", 1, "0")
	m.Reloads.Loaded(time.Unix(10, 0))
	check("started", 1, "10")
	for i, r := range []struct {
		result  metrics.ReloadResult
		success int
		at      string
	}{
		{metrics.ReloadInvalid, 0, "10"},
		{metrics.ReloadApplied, 1, "102"},
		{metrics.ReloadRefused, 0, "102"},
		{metrics.ReloadUnchanged, 1, "104"},
	} {
		m.Reloads.Reloaded(r.result, time.Unix(int64(101+i), 0))
		check(string(r.result), r.success, r.at)
		if line := fmt.Sprintf("\ndeckhand_config_reloads_total{result=%q} 1\n", r.result); !strings.Contains(scrape(t, m), line) {
			t.Errorf("no %q", line)
		}
	}
}
