package embedded

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/child"
)

// A containerd that doesn't answer is killed and restarted; shims and containers continue. A containerd that is
// only slow must not be killed, because a restart interrupts calls in progress. So the health check is a call that
// needs no disk, lock or shim: containerd answers it with a millisecond of CPU time under any load. Any answer,
// even an error, means that containerd is alive.
const (
	// askEvery is the time from an answer to the next health check.
	askEvery = 15 * time.Second
	// lookEvery is how often the process is inspected while a health check is unanswered.
	lookEvery = 5 * time.Second
	// startFor bounds the time until the first answer. A starting containerd has no socket before it has read its
	// database and called every shim, and waits 5 seconds for each shim that doesn't answer.
	startFor = 15 * time.Minute
)

// patience limits how long a process may be unresponsive.
type patience struct {
	// still limits the time in which it uses less than a hundredth of a CPU: it was stopped, or is deadlocked.
	still time.Duration
	// all limits the whole time, including time in which it uses the CPU.
	all time.Duration
}

var (
	whileStarting = patience{still: startFor, all: startFor}
	whileRunning  = patience{still: time.Minute, all: 5 * time.Minute}
	// whileAdopted leaves time to start another containerd before systemd kills the agent (TimeoutStartSec in
	// packaging/deckhand.service).
	whileAdopted = patience{still: time.Minute, all: 2 * time.Minute}
)

// silence accumulates how long a health check has been unanswered.
type silence struct {
	limits     patience
	still, all time.Duration
	last       child.Activity
}

// add counts a period of length d that ended with the observation now, and reports whether the process hangs. Periods
// in which the process was blocked in the kernel don't count: a killed process would stay blocked, and a new one would
// block on the same disk. A period counts as at most lookEvery: if the agent itself was stopped (by a suspended machine
// or a debugger), the process may have been stopped, too.
func (s *silence) add(d time.Duration, now child.Activity) bool {
	used := now.CPU - s.last.CPU
	s.last = now
	if now.Blocked {
		return false
	}
	counted := min(d, lookEvery)
	s.all += counted
	if used < d/100 {
		s.still += counted
	}
	return s.still >= s.limits.still || s.all >= s.limits.all
}

// attend returns nil when containerd has ended, or ctx's error if ctx ends first. It kills a containerd that hangs;
// first limits the time until the first answer.
func (r *Runtime) attend(ctx context.Context, p *child.Process, first patience) error {
	watched, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { r.killHung(watched, p, first) })
	defer watch.Wait()
	defer stop()
	return p.Wait(ctx)
}

// killHung checks containerd's health periodically until ctx ends, and kills it if it hangs.
func (r *Runtime) killHung(ctx context.Context, p *child.Process, limits patience) {
	for wake.Sleep(ctx, askEvery) {
		hangErr := r.awaitAnswer(ctx, p, limits)
		if hangErr == nil {
			limits = whileRunning
			continue
		}
		if ctx.Err() == nil {
			r.log.Error(hangErr, "Killing containerd; pods go on running", "pid", p.PID(),
				"lastLogLine", child.LastLine(r.layout.Log()))
			if err := p.Kill(); err != nil {
				r.log.Error(err, "Can't kill containerd", "pid", p.PID())
			}
		}
		return
	}
}

// awaitAnswer returns nil once containerd has answered a health check. The error means that it hangs; it is ctx's
// if ctx ended first.
func (r *Runtime) awaitAnswer(ctx context.Context, p *child.Process, limits patience) error {
	asking, stop := context.WithCancel(ctx)
	answered := make(chan struct{})
	var ask sync.WaitGroup
	ask.Go(func() {
		defer close(answered)
		askHealth(asking, r.layout.Socket())
	})
	defer ask.Wait()
	defer stop()
	return listen(ctx, answered, p.Activity, limits)
}

// listen waits for an answer, and inspects the process meanwhile.
func listen(ctx context.Context, answered <-chan struct{}, activity func() child.Activity, limits patience) error {
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	quiet, since := silence{limits: limits, last: activity()}, time.Now()
	for {
		select {
		case <-answered:
			return ctx.Err()
		case <-ctx.Done():
			return ctx.Err()
		case <-looks.C:
		}
		now := time.Now()
		took := now.Sub(since)
		since = now
		if quiet.add(took, activity()) {
			return fmt.Errorf("it has answered nothing for %s, and stood still for %s of that", quiet.all, quiet.still)
		}
	}
}

// askHealth returns when containerd has answered in any way, or ctx has ended. containerd's gRPC health service is
// disabled, so the server itself answers Unimplemented. The CRI isn't used: until it has recovered its containers
// it answers Unavailable, which is also the code of a broken connection.
func askHealth(ctx context.Context, socket string) {
	for {
		if conn, err := DialSocket(socket); err == nil {
			_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{},
				grpc.WaitForReady(true))
			_ = conn.Close() // nothing is lost
			if status.Code(err) != codes.Unavailable && ctx.Err() == nil {
				return
			}
		}
		if !wake.Sleep(ctx, askAgain) {
			return
		}
	}
}
