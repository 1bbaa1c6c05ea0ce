package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/events"
)

// clockFollower reports steps of the machine's clock until ctx ends (clock.Clock).
type clockFollower interface {
	Run(ctx context.Context, stepped func(pod.ClockStep), suspended func()) error
}

// clockModule follows the machine's clock. After each step of the clock, and after the machine was suspended, it calls
// the functions in changed: a timer that was set for a date runs for a fixed duration, so a step makes it fire at the
// wrong time. A step is also an event of the node. If the kernel doesn't report steps, the agent runs without these
// calls.
func clockModule(c clockFollower, record events.Node, log logr.Logger, changed ...func()) modules.Module {
	again := func() {
		for _, f := range changed {
			f()
		}
	}
	return modules.Module{Name: "clock", Run: func(ctx context.Context) error {
		err := c.Run(ctx, func(s pod.ClockStep) {
			log.Info("The clock was set", "duration", s.By)
			record.NodeEvent(v1.EventTypeWarning, pod.ReasonClockStepped, stepMessage(s))
			again()
		}, again)
		if err != nil {
			log.Error(err, "The agent goes on after an error",
				"consequence", "Certificates and tokens may be renewed late after the clock was set")
			<-ctx.Done()
		}
		return nil
	}}
}

// stepMessage is the message of the event about a step.
func stepMessage(s pod.ClockStep) string {
	direction := "forward"
	if s.By < 0 {
		direction = "back"
	}
	show := func(t time.Time) string { return t.UTC().Format(time.RFC3339) }
	return fmt.Sprintf("The clock was set %s by %s, from %s to %s; back-offs, deadlines and grace periods under way "+
		"go on. If nobody did that, check the machine's NTP service", direction, s.By.Abs().Round(time.Millisecond),
		show(s.From), show(s.From.Add(s.By)))
}
