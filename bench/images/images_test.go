package images

import (
	"strings"
	"testing"
	"time"

	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// The floor's side against real containerd; the agent's needs a built deckhand
// and is for `make bench-images`.
func TestFloorOnContainerd(t *testing.T) {
	var out strings.Builder
	o := Options{BinDir: embeddedtest.Bin(t), Layers: 2, LayerSize: 1000, Rounds: 2, FloorOnly: true, Out: &out}
	if err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(out.String(), "  pull  ") {
		t.Errorf("the output has no pull in it:\n%s", out.String())
	}
}

func TestResults(t *testing.T) {
	const s = time.Second
	o := Options{Layers: 4, LayerSize: 8 << 20, Pods: 100}
	row := pullTable(o, pulls{floor: []time.Duration{s}, deckhand: []time.Duration{12 * s / 10}}).Rows[0]
	if got, want := strings.Join(row, "|"), "pull|1.00 s|1.20 s|1.20x|≤ 1.10x|MISSED"; got != want {
		t.Errorf("row is %s\n   want %s", got, want)
	}
	row = startTable(o, []start{{10 * s, 12 * s, 1}, {10 * s, 12 * s, 2}}, s).Rows[0]
	if got, want := strings.Join(row, "|"), "100|10.00 s|11.00 s|12.00 s|1.09x|≤ 1.15x|ok|2|1|MISSED"; got != want {
		t.Errorf("row is %s\n   want %s", got, want)
	}
}
