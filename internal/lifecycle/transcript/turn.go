package transcript

import (
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript/words"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Prefixes of the kinds of lines.
const (
	inputLead    = "> "
	decisionLead = "  "
	detailLead   = "    "
)

// Keywords of input lines with a special format.
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

// becauseWord begins the lines of a pod's waits, doWord those of actions.
const (
	becauseWord = "because "
	doWord      = "do"
)

// special reports whether a field of Input has a special format; the others are written as changes since the previous
// step.
func special(f *words.Field) bool {
	switch f.GoName {
	case "Now", "Pod", "InFlight", "Results", "Memory":
		return true
	}
	return false
}

// turn is one decision with its inputs.
type turn struct {
	in lifecycle.Input
	d  lifecycle.Decision
}

// pending returns the actions that are under way until the next step, which has their results.
func (t *turn) pending() []pod.Action {
	if len(t.d.Actions) == 0 {
		return t.in.InFlight
	}
	return append(t.in.InFlight[:len(t.in.InFlight):len(t.in.InFlight)], t.d.Actions...)
}

// remaining returns the actions that are still under way after the results. As in the worker, each result ends the
// first action that matches it.
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

// find returns the index of the action, ignoring the reason (Why), or -1.
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

// findOf returns the index of the first action that `result KIND CONTAINER of=ID` refers to, or -1.
func findOf(list []pod.Action, kind pod.ActionKind, container, id string) int {
	for i := range list {
		if list[i].Kind == kind && list[i].Container == container && list[i].ID == id {
			return i
		}
	}
	return -1
}

// sameActions reports whether two lists hold the same actions in the same order.
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
