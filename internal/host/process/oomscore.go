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

// SetOOMScoreAdj sets this process's oom_score_adj, from -1000 (never killed) to 1000
// (killed first). Where it can't be set the agent is merely more likely to be killed
// when memory runs out, so the error is worth a warning.
//
// Children inherit it. A containerd that is one then runs with the agent's, which is as
// its own unit file has it (-999); its shims and containers get scores of their own.
// But containerd can't give containers a lower score than its own without
// CAP_SYS_RESOURCE.
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
