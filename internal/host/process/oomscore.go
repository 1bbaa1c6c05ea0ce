package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

const (
	oomScoreFile = "/proc/self/oom_score_adj"
	maxOOMScore  = 1000
)

// SetOOMScoreAdj sets this process's oom_score_adj, from -1000 (never killed) to 1000 (killed first). If that fails,
// the OOM killer is merely more likely to kill the agent, so log the error as a warning.
//
// Child processes inherit the value. A containerd that the agent starts therefore has the agent's value, which is also
// the value in containerd's own unit file (-999). Its shims and containers get other values. But without
// CAP_SYS_RESOURCE, containerd can't give containers a lower value than its own.
func SetOOMScoreAdj(adj int) error {
	if adj < -maxOOMScore || adj > maxOOMScore {
		return fmt.Errorf("OOM score %d: has to be in -%[2]d..%[2]d", adj, maxOOMScore)
	}
	err := os.WriteFile(oomScoreFile, []byte(strconv.Itoa(adj)), 0)
	if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
		return fmt.Errorf("set the agent's OOM score to %d: %w: lowering it takes the capability CAP_SYS_RESOURCE, "+
			"which this process doesn't have: "+
			"grant it, have the service manager set the score (OOMScoreAdjust=%[1]d in the unit file), or set "+
			"oomScoreAdj to 0", adj, err)
	}
	if err != nil {
		return fmt.Errorf("set the agent's OOM score to %d: %w", adj, err)
	}
	return nil
}
