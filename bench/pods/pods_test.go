package pods

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/bench/report"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// The floor's side against real containerd; the agent's needs a built deckhand
// and is for `make bench-pods`.
func TestFloorOnContainerd(t *testing.T) {
	var out strings.Builder
	o := Options{
		BinDir: embeddedtest.Bin(t), Counts: []int{2}, Concurrencies: []int{1, 2}, Rounds: 1,
		FloorOnly: true, Out: &out,
	}
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"  2 pods  floor, 2 at a time: started in", "container created and started again"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output doesn't have %q:\n%s", want, out.String())
		}
	}
	left, err := filepath.Glob("/sys/fs/cgroup/*/deckhand-bench")
	if err != nil || len(left) > 0 {
		t.Errorf("cgroups left behind: %v (%v)", left, err)
	}
}

func TestResults(t *testing.T) {
	s := time.Second
	good := &group{
		n: 20, concurrency: floorResult[int]{4, 2}, floor: []floorResult[time.Duration]{{2 * s, s}},
		deckhand: []agentResult{{started: 2200 * time.Millisecond, ready: 3 * s, removed: 1300 * time.Millisecond}},
	}
	row := startTable([]*group{good}, false).Rows[0]
	if got, want := strings.Join(row, "|"), "20|2.00 s (4 at a time)|2.20 s|1.10x|≤ 1.15x|ok|3.00 s|1.00 s (2)|1.30 s|1.30x|≤ 1.20x|MISSED"; got != want {
		t.Errorf("row is %s\n   want %s", got, want)
	}
	one := &single{floorRestart: []time.Duration{s / 10}, ready: []time.Duration{s / 10}, restart: []time.Duration{s / 5}}
	rows := onePodTable(one, false).Rows
	if rows[1][4] != report.Result(false) || rows[2][4] != report.Result(true) {
		t.Errorf("results are %q", rows)
	}
}
