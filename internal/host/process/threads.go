package process

import (
	"runtime"
	"sync"
)

// ThreadsAhead returns how many threads an agent creates in advance: one for each processor that runs goroutines, and
// 24 for goroutines that are blocked in system calls.
func ThreadsAhead() int { return runtime.GOMAXPROCS(0) + 24 }

// PrepareThreads makes the Go runtime create threads until at least n are idle. The runtime keeps idle threads, and
// creates another thread only if a goroutine needs one and none is idle. If the runtime can't create a thread (EAGAIN
// of clone(2) at a limit of processes), it ends the process: "failed to create new OS thread". PrepareThreads returns
// when its goroutines have ended.
func PrepareThreads(n int) {
	var locked, ended sync.WaitGroup
	locked.Add(n)
	for range n {
		ended.Go(func() {
			// No goroutine releases its thread before all goroutines have one.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // without this, the end of the goroutine would end the thread
			locked.Done()
			locked.Wait()
		})
	}
	ended.Wait()
}
