package embedded

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/child"
)

// A containerd that doesn't answer is killed and started again; shims and containers run on. As a restart costs the
// calls that are under way, one that is only slow must not be killed. So it is asked something that needs no disk, no lock
// and no shim, which it answers in a millisecond of CPU time at any load. Whatever it answers, an error included, it lives.
const (
	// askEvery is the time from an answer to the next question.
	askEvery = 15 * time.Second
	// lookEvery is how often its process is looked at while a question is unanswered.
	lookEvery = 5 * time.Second
	// stillFor is how long it may say nothing, and use less than a hundredth of a CPU: it was stopped, or waits for itself.
	stillFor = time.Minute
	// busyFor is how long it may say nothing while it works.
	busyFor = 5 * time.Minute
)

// silence is how long a question has been unanswered.
type silence struct {
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
	return s.still >= stillFor || s.all >= busyFor
}

// attend returns nil when containerd has ended, which it has it do if it is hung, and ctx's error if that came first.
func (r *Runtime) attend(ctx context.Context, p *child.Process) error {
	watched, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { r.killHung(watched, p) })
	defer watch.Wait()
	defer stop()
	return p.Wait(ctx)
}

// killHung asks containerd from time to time until ctx ends, and kills it if it is hung.
func (r *Runtime) killHung(ctx context.Context, p *child.Process) {
	for sleep(ctx, askEvery) {
		silent := r.awaitAnswer(ctx, p)
		if silent == nil {
			continue
		}
		if ctx.Err() == nil {
			r.log.Error(silent, "Killing containerd; pods go on running", "pid", p.PID(), "lastLogLine", child.LastLine(r.layout.Log()))
			if err := p.Kill(); err != nil {
				r.log.Error(err, "Can't kill containerd", "pid", p.PID())
			}
		}
		return
	}
}

// awaitAnswer returns nil once containerd has answered a question, or has ended. The error says that it is hung; it is
// ctx's if that ended first.
func (r *Runtime) awaitAnswer(ctx context.Context, p *child.Process) error {
	asking, stop := context.WithCancel(ctx)
	answered := make(chan struct{})
	var ask sync.WaitGroup
	ask.Go(func() {
		defer close(answered)
		askVersion(asking, r.layout.Socket())
	})
	defer ask.Wait()
	defer stop()
	return listen(ctx, answered, p.Activity)
}

// listen waits for an answer, and looks at the process meanwhile.
func listen(ctx context.Context, answered <-chan struct{}, activity func() child.Activity) error {
	looks := time.NewTicker(lookEvery)
	defer looks.Stop()
	quiet, since := silence{last: activity()}, time.Now()
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

// askVersion returns when containerd has answered the CRI's simplest question, in whatever way, or ctx has ended.
func askVersion(ctx context.Context, socket string) {
	for {
		if conn, err := dial(socket); err == nil {
			_, err = cri.NewRuntimeServiceClient(conn).Version(ctx, &cri.VersionRequest{}, grpc.WaitForReady(true))
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
