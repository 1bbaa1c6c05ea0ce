// Package clock reports steps of the machine's wall clock, which date(1) and NTP can set. The kernel reports each step
// at once, so that the agent doesn't read the clock periodically.
package clock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// least is the minimum size of a step that is reported: smaller ones change nothing for pods.
const least = 2 * time.Second

// most is the maximum number of steps that Steps returns, the latest ones.
const most = 32

// Clock records steps of the wall clock. Its methods are safe for concurrent use.
type Clock struct {
	// first is the state of the clocks at the time when the Clock was created.
	first reading
	steps atomic.Pointer[[]pod.ClockStep]
}

// New returns a Clock. Steps count from now on, but aren't reported before Run.
func New() *Clock { return &Clock{first: readClocks()} }

// Steps returns the steps so far, oldest first. The caller must not change the list.
func (c *Clock) Steps() []pod.ClockStep {
	if list := c.steps.Load(); list != nil {
		return *list
	}
	return nil
}

// Run waits for steps until ctx ends, and calls stepped after each step of 2 s or more. Smaller steps count once their
// sum is that large; all steps between New and Run count as one. When stepped is called, Steps includes the step. Run
// returns an error if the kernel can't report steps.
//
// The suspension of the machine isn't a step: the machine's clocks advance meanwhile. But Go's timers stop; therefore
// Run calls suspended after it. Run is called once.
func (c *Clock) Run(ctx context.Context, stepped func(pod.ClockStep), suspended func()) error {
	s, err := openSource()
	if err != nil {
		return fmt.Errorf("wait for steps of the clock: %w", err)
	}
	return c.follow(ctx, s, stepped, suspended)
}

// source is the kernel's side of a Clock.
type source interface {
	// arm has to be called before await: await then returns if the clock is set after arm.
	arm() error
	// await waits until the clock has been set since arm, or until close.
	await() error
	read() reading
	close()
}

// reading is the state of the machine's clocks at one moment.
type reading struct {
	wall time.Time
	// boot and awake are the times since the machine's boot; awake doesn't include the time of suspension.
	boot, awake time.Duration
}

// stepSince returns by how much the wall clock was set since a reading: the difference between its advance and the time
// that has passed.
func (r reading) stepSince(before reading) time.Duration {
	return r.wall.Sub(before.wall.Add(r.boot - before.boot))
}

// sleptSince returns how long the machine was suspended since a reading.
func (r reading) sleptSince(before reading) time.Duration {
	return (r.boot - before.boot) - (r.awake - before.awake)
}

// follow implements Run with the source s, which it closes.
func (c *Clock) follow(ctx context.Context, s source, stepped func(pod.ClockStep), suspended func()) error {
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { s.close(); close(closed) })
	defer func() {
		if stop() {
			s.close()
		} else {
			<-closed
		}
	}()
	before := c.first
	for {
		// The source is armed before the clocks are read, so that no step between the two is missed.
		if err := s.arm(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("wait for steps of the clock: %w", err)
		}
		now := s.read()
		if now.sleptSince(before) >= least {
			suspended()
			before.boot, before.awake, before.wall = now.boot, now.awake, before.wall.Add(now.boot-before.boot)
		}
		if by := now.stepSince(before); by.Abs() >= least {
			step := pod.ClockStep{From: now.wall.Add(-by), By: by}
			c.add(step)
			before = now
			stepped(step)
		}
		if err := s.await(); ctx.Err() != nil {
			return nil
		} else if err != nil {
			return fmt.Errorf("wait for steps of the clock: %w", err)
		}
	}
}

// add adds a step to the result of Steps.
func (c *Clock) add(s pod.ClockStep) {
	list := append(append([]pod.ClockStep(nil), c.Steps()...), s)
	list = list[max(0, len(list)-most):]
	c.steps.Store(&list)
}

// timer is a timerfd that expires far in the future, or when the clock is set (timerfd_create(2),
// TFD_TIMER_CANCEL_ON_SET). The kernel also makes it expire when the machine resumes.
type timer struct {
	fd   int
	file *os.File
}

func openSource() (*timer, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	return &timer{fd, os.NewFile(uintptr(fd), "timerfd")}, nil
}

func (t *timer) arm() error {
	never := unix.ItimerSpec{Value: unix.Timespec{Sec: math.MaxInt64}}
	err := unix.TimerfdSettime(t.fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil)
	if err != nil && !errors.Is(err, unix.ECANCELED) {
		return fmt.Errorf("timerfd_settime: %w", err)
	}
	return nil
}

func (t *timer) await() error {
	var expirations [8]byte
	if _, err := t.file.Read(expirations[:]); err != nil && !errors.Is(err, unix.ECANCELED) {
		return err
	}
	return nil
}

func (t *timer) close() { _ = t.file.Close() }

// exact is the maximum time that readClocks may take to read all clocks. Otherwise, if the thread waits for a CPU
// between two reads, that would look like a step. After this number of attempts, readClocks returns the fastest
// reading.
const (
	exact    = time.Millisecond
	attempts = 100
)

func (t *timer) read() reading { return readClocks() }

func readClocks() (best reading) {
	took := time.Duration(math.MaxInt64)
	for range attempts {
		from, wall, awake, to := get(unix.CLOCK_BOOTTIME), get(unix.CLOCK_REALTIME), get(unix.CLOCK_MONOTONIC),
			get(unix.CLOCK_BOOTTIME)
		boot := time.Duration(from.Nano())
		if d := time.Duration(to.Nano()) - boot; d < took {
			took = d
			best = reading{time.Unix(wall.Unix()), boot, time.Duration(awake.Nano())}
		}
		if took <= exact {
			break
		}
	}
	return best
}

// SinceBoot returns the time since the machine was booted, including the time that it was suspended.
func SinceBoot() time.Duration {
	now := get(unix.CLOCK_BOOTTIME)
	return time.Duration(now.Nano())
}

// get reads one clock. It never fails, because these clocks exist in every kernel since 2.6.39.
func get(clock int32) (t unix.Timespec) {
	_ = unix.ClockGettime(clock, &t)
	return t
}
