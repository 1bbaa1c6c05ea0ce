package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// burned is what a process tells that used as much CPU time as it could get.
type burned struct{ Used, Took time.Duration }

// burn uses as much CPU time as it can get for a while, on every CPU.
func burn(text string) error {
	took, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	began, before := time.Now(), cpuTime()
	ended := make(chan struct{})
	for range runtime.NumCPU() {
		go func() {
			for time.Since(began) < took {
			}
			ended <- struct{}{}
		}()
	}
	for range runtime.NumCPU() {
		<-ended
	}
	return json.NewEncoder(os.Stdout).Encode(burned{cpuTime() - before, time.Since(began)})
}

// cpuTime is what this process has used.
func cpuTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // there is that clock
	return time.Duration(t.Nano())
}

// parent survives whatever its child comes to.
func parent(text string, child []string) error {
	code, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	cmd := exec.Command("/proc/self/exe", child...)
	cmd.Stderr = os.Stderr
	fmt.Println("child:", cmd.Run())
	return exitCode(code)
}

// forked is what a process tells that made as many as it could.
type forked struct {
	Children int
	Error    string
}

// fork makes processes until that fails. A child has one thread, which only waits: that of another program might not even start.
func fork(text string) error {
	most, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	debug.SetGCPercent(-1) // which might want another thread
	runtime.LockOSThread()
	var made forked
	for made.Children < most {
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
		if errno != 0 {
			made.Error = errno.Error()
			break
		}
		for pid == 0 {
			unix.RawSyscall6(unix.SYS_PPOLL, 0, 0, 0, 0, 0, 0)
		}
		made.Children++
	}
	return json.NewEncoder(os.Stdout).Encode(made)
}
