package main

import (
	"encoding/json"
	"os"
	"runtime"
	"slices"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// stay is a time in which a thread was always seen on the same CPU. From and To are times since boot.
type stay struct {
	From, To time.Duration
	CPU      uint32
	Samples  int
}

// samplers is how many threads sample: on an idle machine, one would never leave its CPU.
const samplers = 4

// sample has threads ask each millisecond for the CPU that they run on, and tells that in the end.
func sample(text string) error {
	limit, err := time.ParseDuration(text)
	if err != nil {
		return err
	}
	lists := make(chan []stay, samplers)
	for range samplers {
		go func() {
			runtime.LockOSThread()
			lists <- stays(limit)
		}()
	}
	var all []stay
	for range samplers {
		all = append(all, <-lists...)
	}
	slices.SortFunc(all, func(a, b stay) int { return int(a.From - b.From) })
	return json.NewEncoder(os.Stdout).Encode(all)
}

func stays(limit time.Duration) (list []stay) {
	between := unix.NsecToTimespec(time.Millisecond.Nanoseconds())
	for began := sinceBoot(); ; _ = unix.Nanosleep(&between, nil) {
		var cpu uint32
		at := sinceBoot()
		if _, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); errno != 0 {
			return nil
		}
		if len(list) == 0 || list[len(list)-1].CPU != cpu {
			list = append(list, stay{From: at, CPU: cpu})
		}
		last := &list[len(list)-1]
		last.To = at
		if last.Samples++; at-began > limit {
			return list
		}
	}
}

func sinceBoot() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &t) // there is that clock
	return time.Duration(t.Nano())
}
