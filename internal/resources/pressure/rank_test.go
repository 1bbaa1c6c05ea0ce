package pressure

import (
	"strconv"
	"testing"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
)

// A threshold at or above the capacity is reported: pods would be ended for nothing.
func TestExcessiveThreshold(t *testing.T) {
	o := Observation{Readings: map[Signal]Reading{NodeMemory: {Available: 5, Capacity: 10}, NodeBytes: {}}}
	for least, bad := range map[int64]bool{5: false, 9: false, 10: true, 11: true} {
		s := Settings{Thresholds: []Threshold{{Signal: NodeBytes, Least: capacity.Amount{Value: 1}}, {Signal: NodeMemory, Least: capacity.Amount{Value: least}}}}
		if err := excessive(s, o); (err != nil) != bad {
			t.Errorf("%d of 10: %v", least, err)
		}
	}
}

// BenchmarkRank is the order of 500 pods that use memory.
func BenchmarkRank(b *testing.B) {
	var pods []Pod
	for i := range 500 {
		pods = append(pods, Pod{UID: strconv.Itoa(i), Active: true, Priority: int32(i % 3), Memory: int64(i * 7919 % 500), MemoryRequest: int64(i % 100)})
	}
	k := kindOf(NodeMemory)
	for b.Loop() {
		k.rank(pods, OneFileSystem, 0)
	}
}
