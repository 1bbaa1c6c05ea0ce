package transcript

import (
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript/words"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/explain"
)

// Describe returns the text of a single decision, as in the first step of a transcript.
func Describe(in lifecycle.Input, d lifecycle.Decision) string {
	text, _ := appendDecision(nil, &turn{in: in, d: d}, &turn{}, in.Now)
	return string(text)
}

// appendDecision appends the lines of a decision. prev is the previous decision: the status, and the fields that
// appendRest writes, appear only as changes since prev. It reports whether the decision differs from prev.
func appendDecision(dst []byte, t, prev *turn, base time.Time) (text []byte, differs bool) {
	d := &t.d
	for _, target := range d.Cancel {
		dst = appendText(append(dst, decisionLead+"cancel "...), target)
		dst = append(dst, '\n')
	}
	for i := range d.Actions {
		dst = append(appendAction(append(dst, decisionLead+doWord...), &d.Actions[i], base), '\n')
	}
	for i := range d.Events {
		dst = appendEvent(dst, &d.Events[i], base)
	}
	differs = len(d.Cancel)+len(d.Actions)+len(d.Events) > 0 || d.Done != prev.d.Done ||
		!d.Wake.Equal(prev.d.Wake) || !slices.EqualFunc(d.Waits, prev.d.Waits, sameWait)
	for i := range d.Waits {
		dst = appendWait(dst, &d.Waits[i], t.in.Pod, base)
	}
	if d.Status != nil {
		dst = appendSummary(append(dst, decisionLead+"status "...), d.Status)
		dst = append(dst, '\n')
	}
	mark := len(dst)
	dst = appendStatusChanges(dst, d.Status, prev.d.Status, base)
	dst = appendRest(dst, d, &prev.d, base)
	differs = differs || len(dst) > mark
	if !d.Wake.IsZero() {
		dst = append(dst, decisionLead+"wake in "...)
		dst = append(append(dst, d.Wake.Round(0).Sub(t.in.Now.Round(0)).String()...), '\n')
	}
	if d.Done {
		dst = append(dst, decisionLead+"done\n"...)
	}
	return dst, differs
}

// appendRest writes the other fields of a decision, such as the probes that should run, as changes since prev.
func appendRest(dst []byte, d, prev *lifecycle.Decision, base time.Time) []byte {
	v, p := words.At(d), words.At(prev)
	for _, f := range formats().decision.Fields() {
		switch f.GoName {
		case "Actions", "Cancel", "Status", "Wake", "Waits", "Events", "Memory", "Done":
		default:
			dst = f.AppendChanges(dst, decisionLead, f.Of(v), f.Of(p), base)
		}
	}
	return dst
}

// sameWait compares two waits as a transcript shows them: times are equal if they are the same instant.
func sameWait(a, b pod.Wait) bool {
	same := a.Since.Equal(b.Since) && a.Next.Equal(b.Next)
	a.Since, a.Next, b.Since, b.Next = time.Time{}, time.Time{}, time.Time{}, time.Time{}
	return same && a == b
}

// appendEvent appends `event Normal Killing: Stopping container web`, followed in brackets by fields that the message
// doesn't contain.
func appendEvent(dst []byte, e *pod.Event, base time.Time) []byte {
	rest := *e
	rest.Type, rest.Reason, rest.Message = "", "", ""
	if strings.Contains(e.Message, "container "+e.Container) {
		rest.Container = ""
	}
	dst = appendText(append(dst, decisionLead+"event "...), e.Type)
	dst = appendText(append(dst, ' '), string(e.Reason))
	dst = appendText(append(dst, ": "...), e.Message)
	return append(appendBrackets(dst, formats().event, words.At(&rest), base), '\n')
}

// waitRest holds the fields of a wait that are written in brackets.
type waitRest struct {
	Since, Next time.Time
	Advice      string
}

// appendWait appends `because container web: is being created`, followed in brackets by the start of the wait, the
// next step and advice.
func appendWait(dst []byte, w *pod.Wait, p *v1.Pod, base time.Time) []byte {
	rest := waitRest{Since: w.Since, Next: w.Next, Advice: explain.Advice(w, p)}
	dst = appendText(append(dst, decisionLead+becauseWord...), explain.Named(w))
	return append(appendBrackets(dst, formats().wait, words.At(&rest), base), '\n')
}

// appendBrackets appends ` [key=value key=value]`, or nothing if all fields are zero.
func appendBrackets(dst []byte, t *words.Type, v words.Value, base time.Time) []byte {
	if t.Zero(v) {
		return dst
	}
	mark := len(dst)
	dst = t.AppendFields(append(dst, ' '), v, words.Value{}, base)
	dst[mark+1] = '[' // instead of the space before the first key
	return append(dst, ']')
}

// appendText appends a string. It escapes the string if that would end the line or control the terminal that shows
// it.
func appendText(dst []byte, s string) []byte {
	if terminal.Is(s) {
		return append(dst, s...)
	}
	quoted := strconv.AppendQuote(nil, s)
	return append(dst, quoted[1:len(quoted)-1]...)
}

// appendStatusChanges writes, line by line, the differences of a status from the previous one.
func appendStatusChanges(dst []byte, st, prev *v1.PodStatus, base time.Time) []byte {
	if st == prev || st == nil {
		return dst
	}
	if prev == nil {
		prev = &v1.PodStatus{}
	}
	t := formats().status
	v, p := words.At(st), words.At(prev)
	mark := len(dst)
	dst = append(dst, detailLead+"pod"...)
	empty := len(dst)
	dst = t.AppendFields(dst, v, p, base)
	if len(dst) == empty {
		dst = dst[:mark]
	} else {
		dst = append(dst, '\n')
	}
	for _, f := range t.Fields() {
		if f.Line != "" {
			dst = f.AppendChanges(dst, detailLead, f.Of(v), f.Of(p), base)
		}
	}
	return dst
}
