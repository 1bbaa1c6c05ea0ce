package pressure

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// A machine thrashes if the used part of its swap space exceeds thrashingSwap, and the part of the last 10 s in which
// its tasks waited for memory exceeds thrashingStalls, both in percent.
const (
	thrashingSwap   = 90
	thrashingStalls = 10
)

// Thrashing describes a machine that spends most of its time swapping. It is empty for other machines, and without
// swap. root is the root of the file system. No signal shows thrashing: swapped memory counts as available
// (kubernetes/kubernetes#120800), and stalls alone are no reason to end a pod (KEP-5062).
func Thrashing(root string) string {
	m, err := capacity.ReadMeminfo(root)
	if err != nil || m.Swap <= 0 {
		return ""
	}
	text, err := os.ReadFile(filepath.Join(root, "proc/pressure/memory"))
	if err != nil {
		return "" // the kernel doesn't measure it
	}
	stalls := counters.ParsePressure(string(text))
	used := (m.Swap - m.SwapFree) * 100 / m.Swap
	if stalls == nil || used <= thrashingSwap || stalls.Full.Avg10 <= thrashingStalls {
		return ""
	}
	return fmt.Sprintf("%d%% of %s of swap space are used, and for %.0f%% of the last 10 s all tasks waited for memory",
		used, room.Bytes(uint64(m.Swap)), stalls.Full.Avg10)
}
