package report

import (
	"context"
	"time"
)

// restFor is how long a process gets to come to rest before that is measured.
const restFor = 5 * time.Second

// Rest is what a process costs while nothing happens.
type Rest struct {
	// CPU is the CPU time used in While.
	CPU, While time.Duration
	Memory     Memory
}

// MeasureRest lets the process come to rest and looks at it for a while.
func MeasureRest(ctx context.Context, pid int, while time.Duration) (Rest, error) {
	if err := Pause(ctx, restFor); err != nil {
		return Rest{}, err
	}
	before, err := CPUTime(pid)
	if err != nil {
		return Rest{}, err
	}
	began := time.Now()
	if err := Pause(ctx, while); err != nil {
		return Rest{}, err
	}
	after, err := CPUTime(pid)
	if err != nil {
		return Rest{}, err
	}
	r := Rest{CPU: after - before, While: time.Since(began)}
	r.Memory, err = MemoryOf(pid)
	return r, err
}

// Pause waits for that long, or returns the error of ctx if that ends before.
func Pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
