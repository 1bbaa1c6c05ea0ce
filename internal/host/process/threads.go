package process

import (
	"runtime"
	"sync"
)

// PrepareThreads makes the Go runtime create threads until at least n are idle. The runtime keeps idle threads, and
// creates another one only if a goroutine needs a thread and none is idle. If it can't (EAGAIN of clone(2) at a limit
// of processes), it ends the process: "failed to create new OS thread". PrepareThreads returns when its goroutines
// have ended.
func PrepareThreads(n int) {
	var locked, ended sync.WaitGroup
	locked.Add(n)
	for range n {
		ended.Go(func() {
			// Until all goroutines have a thread, none gives up its own.
			runtime.LockOSThread()
			defer runtime.UnlockOSThread() // ending while locked would end the thread
			locked.Done()
			locked.Wait()
		})
	}
	ended.Wait()
}
