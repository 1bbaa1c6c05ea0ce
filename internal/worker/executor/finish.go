package executor

import (
	"context"
	"time"
)

// breakOffAfter is how long a call that creates or starts something continues after its context is done, because the
// agent stops or the pod has to end. If a runtime is interrupted during a start, it leaves a container with StartError,
// which counts as a restart, and containerd may leave a shim of which it has no record.
const breakOffAfter = 3 * time.Second

// finishing returns a context for a call that creates or starts something, and the function that releases it.
func finishing(ctx context.Context) (detached context.Context, release func()) {
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(breakOffAfter, cancel) })
	return detached, func() {
		unhook()
		cancel()
	}
}
