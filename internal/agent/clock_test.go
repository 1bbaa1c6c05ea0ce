package agent

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/events"
)

// steps is a clock that reports a list of steps, and then ends with err. A step of 0 stands for a suspension.
type steps struct {
	list []pod.ClockStep
	err  error
}

func (s steps) Run(ctx context.Context, stepped func(pod.ClockStep), suspended func()) error {
	for _, step := range s.list {
		if step.By == 0 {
			suspended()
		} else {
			stepped(step)
		}
	}
	if s.err == nil {
		<-ctx.Done()
	}
	return s.err
}

// TestClockStepped: each step is an event of the node. After it, and after a suspension, the functions are called.
func TestClockStepped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
		recorder, looked := events.New(10), make(chan struct{}, 10)
		m := clockModule(steps{list: []pod.ClockStep{{From: from, By: time.Hour}, {}, {From: from.Add(time.Hour), By: -24 * time.Hour}}},
			events.Node{Recorder: recorder, Name: "n"}, funcr.New(func(_, _ string) {}, funcr.Options{}), func() { looked <- struct{}{} })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-done; err != nil || len(looked) != 3 {
			t.Errorf("%v; %d times", err, len(looked))
		}
		var got []string
		for _, e := range recorder.List() {
			if e.Object.Kind != "Node" || e.Type != "Warning" || e.Reason != pod.ReasonClockStepped {
				t.Errorf("an event %+v", e)
			}
			message, _, _ := strings.Cut(e.Message, ";")
			got = append(got, message)
		}
		const want = "The clock was set forward by 1h0m0s, from 2026-11-29T12:00:00Z to 2026-11-29T13:00:00Z|" +
			"The clock was set back by 24h0m0s, from 2026-11-29T13:00:00Z to 2026-11-28T13:00:00Z"
		if all := strings.Join(got, "|"); all != want {
			t.Errorf("events %q, want %q", all, want)
		}
	})
}

// An agent on a kernel that reports no steps says so once and goes on.
func TestStepsThatNobodyReports(t *testing.T) {
	logged := make(chan string, 10)
	m := clockModule(steps{err: errors.New("no timerfd")}, events.Node{Recorder: events.New(1)},
		funcr.New(func(_, line string) { logged <- line }, funcr.Options{}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	if line := <-logged; !strings.Contains(line, "no timerfd") {
		t.Errorf("logged %q", line)
	}
	select {
	case err := <-done:
		t.Fatalf("it ended with %v", err)
	default:
	}
	cancel()
	if err := <-done; err != nil || len(logged) > 0 {
		t.Errorf("%v, %d more lines", err, len(logged))
	}
}
