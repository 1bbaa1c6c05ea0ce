package scale

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/bench/report"
)

// The in-memory runtime is served by a process of its own and ends on request; an
// agent that can't be started is reported, and leaves nothing behind.
func TestServeAndMissingAgent(t *testing.T) {
	bench := filepath.Join(t.TempDir(), "bench")
	build := exec.Command("go", "build", "-o", bench, "github.com/deckhand-node/deckhand/bench/cmd/bench")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as everything is but for the race detector
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build bench: %v\n%s", err, out)
	}
	places := func() []string {
		list, err := filepath.Glob("/tmp/deckhand-scale-*")
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	before := places() // of measurements that were killed
	var out strings.Builder
	err := Run(t.Context(), Options{BinDir: t.TempDir(), Counts: []int{1}, MemCRI: []string{bench, "memcri"}, Out: &out})
	if err == nil || !strings.Contains(err.Error(), "start agent") || strings.Contains(err.Error(), "\n") {
		t.Errorf("error is %v, want only that the agent can't be started", err)
	}
	if left := places(); !slices.Equal(left, before) {
		t.Errorf("left behind: %v, before were %v", left, before)
	}
}

func TestResults(t *testing.T) {
	within := result{n: 500, reported: 2 * time.Second, cpu: 4 * time.Second, Rest: report.Rest{
		CPU: 100 * time.Millisecond, While: 25 * time.Second, Memory: report.Memory{RSS: 60 << 20, PSS: 50 << 20},
	}}
	many, slow := within, within
	many.n, many.reported = 2000, 13*time.Second
	slow.reported = 4 * time.Second
	for i, want := range []string{
		"500|2.00 s|4.00 CPU-s|4.0 mcores|60.0 MiB|50.0 MiB|< 3.0 s, 5.0 CPU-s, 5.0 mcores, 70 MiB|ok",
		"2000|13.00 s|4.00 CPU-s|4.0 mcores|60.0 MiB|50.0 MiB|< 13.5 s, 22.5 CPU-s, 22.5 mcores, 315 MiB|ok",
		"500|4.00 s|4.00 CPU-s|4.0 mcores|60.0 MiB|50.0 MiB|< 3.0 s, 5.0 CPU-s, 5.0 mcores, 70 MiB|MISSED",
	} {
		if got := strings.Join(table("deckhand", []result{within, many, slow}).Rows[i], "|"); got != want {
			t.Errorf("row %d is %s\n     want %s", i, got, want)
		}
	}
}
