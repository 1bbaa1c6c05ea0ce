package command

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/server/local/localtest"
)

func jobEvent(seq uint64, kind, reason string, count int) local.Event {
	at := now.Add(-time.Duration(10-seq) * time.Second)
	return local.Event{Seq: seq, Time: at, First: at, Type: kind, Reason: reason, Namespace: "default", Object: "pod/job-n1", Message: fmt.Sprint("about ", reason), Count: count}
}

func TestEventsWatch(t *testing.T) {
	agent := localtest.New()
	started, backOff := jobEvent(1, "Normal", "Started", 1), jobEvent(2, "Warning", "BackOff", 1)
	agent.SetEvents([]local.Event{started})
	root := localtest.Serve(t, agent)
	s := begin(t, Deps{RootDir: root}, "", "events", "-w")
	s.expect(s.out,
		"NAMESPACE   LAST SEEN   COUNT   TYPE     REASON    OBJECT       MESSAGE",
		"default     9s          1       Normal   Started   pod/job-n1   about Started")
	agent.SetEvents([]local.Event{started, backOff})
	s.expect(s.out, "default     8s          1       Warning   BackOff   pod/job-n1   about BackOff")
	agent.SetEvents([]local.Event{started, jobEvent(3, "Warning", "BackOff", 2)}) // what was printed before isn't repeated
	s.expect(s.out, "default     7s          2       Warning   BackOff   pod/job-n1   about BackOff")
	s.stop()
	s.ended(0)
}

func TestEventsWatchOnlyWhatIsAskedFor(t *testing.T) {
	agent := localtest.New()
	agent.Update(pods(jobView(v1.PodRunning, running)))
	root := localtest.Serve(t, agent)
	s := begin(t, Deps{RootDir: root}, "", "events", "-w", "--for", "job", "--types", "Warning", "-o", "yaml")
	other := jobEvent(2, "Warning", "Other", 1)
	other.Object = "pod/other-n1"
	agent.SetEvents([]local.Event{jobEvent(1, "Normal", "Started", 1), other, jobEvent(3, "Warning", "BackOff", 2)})
	s.expect(s.out, "---", "apiVersion: v1", "count: 2", "eventTime: null", `firstTimestamp: "2026-01-02T03:03:58Z"`,
		"involvedObject:", "  kind: Pod", "  name: job-n1", "  namespace: default", "kind: Event", `lastTimestamp: "2026-01-02T03:03:58Z"`,
		"message: about BackOff", "metadata:", "  name: job-n1.3", "  namespace: default", `  resourceVersion: "3"`,
		"reason: BackOff", `reportingComponent: ""`, `reportingInstance: ""`, "source: {}", "type: Warning")
	s.stop()
	s.ended(0)
}
