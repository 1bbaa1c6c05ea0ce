package preflight

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// checkSwap reports active swap. As for the kubelet, every kind counts, also zram and a deleted file: pods' memory
// may be swapped out to any of them. (A tmpfs doesn't count: it isn't swap, but may be swapped out. Memory-backed
// volumes are mounted with noswap where the kernel supports that.)
func checkSwap(attitude Attitude, read reader) []Problem {
	const file = "/proc/swaps"
	if attitude == Accept {
		return nil
	}
	text, err := read(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a kernel without swap
	}
	if err != nil {
		return fatal(fmt.Errorf("swap: %w", err))
	}
	var active []string
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] != "Filename" {
			active = append(active, f[0])
		}
	}
	if len(active) == 0 {
		return nil
	}
	return attitude.about(fmt.Sprintf(
		"swap is on (%s), which pods use only if memorySwap.swapBehavior lets them, but which makes memory use hard "+
			"to predict: "+
			"turn it off (swapoff -a, and what turns it on at boot: /etc/fstab, systemd's *.swap, zram-generator)",
		strings.Join(active, ", ")),
		"failSwapOn: false (--fail-swap-on=false)")
}
