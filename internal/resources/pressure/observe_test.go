package pressure

import (
	"testing"

	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
)

// When the alarm comes, the threshold is met, and by less than a step.
func TestAlarmAt(t *testing.T) {
	const least = 100 << 20
	for _, inactive := range []uint64{0, 1, 4096, step - 1, step, 5*step + 7} {
		at := alarmAt(counters.Memory{Limit: 512 << 20, InactiveFile: inactive}, least)
		if left := 512<<20 - (at - inactive); left >= least || left < least-step {
			t.Errorf("with %d bytes of inactive page cache, the alarm comes when %d bytes are left", inactive, left)
		}
		if at%step != 0 {
			t.Errorf("an alarm at %d bytes isn't a multiple of %d", at, step)
		}
	}
}
