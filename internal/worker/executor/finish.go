package executor

import (
	"context"
	"time"
)

// breakOffAfter is how long a call that makes or starts something goes on when its
// end is asked for: when the agent stops, or the pod has to go. A runtime that is
// left in the midst of a start leaves a container that ended with StartError, which
// counts as a restart, and containerd can leave a shim that it has forgotten.
const breakOffAfter = 3 * time.Second

// finishing returns a context for such a call, and what releases it afterwards.
func finishing(ctx context.Context) (detached context.Context, release func()) {
	detached, cancel := context.WithCancel(context.WithoutCancel(ctx))
	unhook := context.AfterFunc(ctx, func() { time.AfterFunc(breakOffAfter, cancel) })
	return detached, func() {
		unhook()
		cancel()
	}
}
