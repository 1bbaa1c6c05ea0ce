package transcript

import (
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript/words"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// What begins each kind of line.
const (
	inputLead    = "> "
	decisionLead = "  "
	detailLead   = "    "
)

// Words that begin lines of inputs which aren't written by the rule.
const (
	atWord         = "at"
	podWord        = "pod"
	inFlightWord   = "inflight"
	resultWord     = "result"
	memoryWord     = "memory"
	incompleteWord = "incomplete"
	failedWord     = "failed"
	ofWord         = "of="
	noneWord       = "none"
)

// becauseWord begins lines of what a pod waits for, doWord those of actions.
const (
	becauseWord = "because "
	doWord      = "do"
)

// special are the fields of an Input with lines of their own making; the rest is
// written as what differs from the step before.
func special(f *words.Field) bool {
	switch f.GoName {
	case "Now", "Pod", "InFlight", "Results", "Memory":
		return true
	}
	return false
}

// turn is one decision with what it was made from.
type turn struct {
	in lifecycle.Input
	d  lifecycle.Decision
}

// pending returns the actions under way when the next step's results come in.
func (t *turn) pending() []pod.Action {
	if len(t.d.Actions) == 0 {
		return t.in.InFlight
	}
	return append(t.in.InFlight[:len(t.in.InFlight):len(t.in.InFlight)], t.d.Actions...)
}

// remaining returns the actions that go on after the results: each result takes the
// first action that it is of, as in the worker.
func remaining(pending []pod.Action, results []pod.Result) []pod.Action {
	if len(pending) == 0 || len(results) == 0 {
		return pending
	}
	rest := append([]pod.Action(nil), pending...)
	for i := range results {
		if at := find(rest, &results[i].Action); at >= 0 {
			rest = append(rest[:at], rest[at+1:]...)
		}
	}
	return rest
}

// find returns the index of the action, whatever the words for why it is taken, or -1.
func find(list []pod.Action, a *pod.Action) int {
	t := formats().action
	for i := range list {
		if list[i].Kind != a.Kind || list[i].ID != a.ID {
			continue
		}
		b := list[i]
		b.Why = a.Why
		if t.Equal(words.At(&b), words.At(a)) {
			return i
		}
	}
	return -1
}

// findOf returns the index of the first action that `result KIND CONTAINER of=ID` means, or -1.
func findOf(list []pod.Action, kind pod.ActionKind, container, id string) int {
	for i := range list {
		if list[i].Kind == kind && list[i].Container == container && list[i].ID == id {
			return i
		}
	}
	return -1
}

// sameActions reports whether two lists hold the same, in the same order.
func sameActions(a, b []pod.Action) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if find(b[i:i+1], &a[i]) < 0 {
			return false
		}
	}
	return true
}

// appendAction appends `CreateContainer web sandbox=sb1 attempt=0 (it never ran)`.
func appendAction(dst []byte, a *pod.Action, base time.Time) []byte {
	t, v := formats().action, words.At(a)
	return t.AppendFields(t.AppendHead(dst, v, base), v, words.Value{}, base)
}
