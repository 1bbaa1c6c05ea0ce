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

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/child"
)

// A containerd that doesn't answer is killed and started again; shims and containers run on. As a restart costs the
// calls that are under way, one that is only slow must not be killed. So it is asked something that needs no disk, no
// lock and no shim, which it answers in a millisecond of CPU time at any load. Whatever it answers, an error included,
// it lives.
const (
	// askEvery is the time from an answer to the next question.
	askEvery = 15 * time.Second
	// lookEvery is how often its process is looked at while a question is unanswered.
	lookEvery = 5 * time.Second
	// startFor bounds the time until the first answer. A containerd that starts has no socket before it has read its
	// database and asked every shim, and waits 5 seconds for one that doesn't answer.
	startFor = 15 * time.Minute
)

// patience limits the silence of a process.
type patience struct {
	// still limits the time in which it uses less than a hundredth of a CPU: it was stopped, or waits for itself.
	still time.Duration
	// all limits the whole silence, also while it works.
	all time.Duration
}

var (
	whileStarting = patience{still: startFor, all: startFor}
	whileRunning  = patience{still: time.Minute, all: 5 * time.Minute}
	// whileAdopted leaves time to start another containerd before systemd ends the agent (TimeoutStartSec in
	// packaging/deckhand.service).
	whileAdopted = patience{still: time.Minute, all: 2 * time.Minute}
)

// silence is how long a question has been unanswered.
type silence struct {
	limits     patience
	still, all time.Duration
	last       child.Activity
}

// add counts a time at whose end the process was seen, and reports whether the process is hung. What it was blocked in
// the kernel isn't counted: killing it wouldn't end that, and starting on a disk that doesn't answer wouldn't either. A
// time counts as no more than lookEvery, for while the agent itself stood still (a machine that was suspended, or its
// debugger) nobody knows what the process could do.
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

// attend returns nil when containerd has ended, and ctx's error if that came first. It kills a containerd that is hung;
// first limits the silence before the first answer.
func (r *Runtime) attend(ctx context.Context, p *child.Process, first patience) error {
	watched, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { r.killHung(watched, p, first) })
	defer watch.Wait()
	defer stop()
	return p.Wait(ctx)
}

// killHung asks containerd from time to time until ctx ends, and kills it if it is hung.
func (r *Runtime) killHung(ctx context.Context, p *child.Process, limits patience) {
	for sleep(ctx, askEvery) {
		silent := r.awaitAnswer(ctx, p, limits)
		if silent == nil {
			limits = whileRunning
			continue
		}
		if ctx.Err() == nil {
			r.log.Error(silent, "Killing containerd; pods go on running", "pid", p.PID(),
				"lastLogLine", child.LastLine(r.layout.Log()))
			if err := p.Kill(); err != nil {
				r.log.Error(err, "Can't kill containerd", "pid", p.PID())
			}
		}
		return
	}
}

// awaitAnswer returns nil once containerd has answered a question. The error says that it is hung; it is ctx's if that
// ended first.
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

// listen waits for an answer, and looks at the process meanwhile.
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

// askHealth returns when containerd has answered, in whatever way, or ctx has ended. The health service is disabled, so
// the server itself answers that there is none. The CRI would answer Unavailable until it has recovered its containers,
// which can't be told from a connection that broke.
func askHealth(ctx context.Context, socket string) {
	for {
		if conn, err := dial(socket); err == nil {
			_, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{},
				grpc.WaitForReady(true))
			_ = conn.Close() // nothing is lost
			if status.Code(err) != codes.Unavailable && ctx.Err() == nil {
				return
			}
		}
		if !sleep(ctx, askAgain) {
			return
		}
	}
}
