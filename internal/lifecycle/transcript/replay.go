package transcript

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript/words"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// Difference is a step for which the present core decides differently from the core at the time of the recording.
type Difference struct {
	// Step counts from 0; Line is where the step begins in the file.
	Step, Line int
	Time       time.Time
	// Recorded are the lines of the decision that are only in the transcript, Now the lines that are only in the
	// present decision; both have all lines if only the order differs. The wording of waits and of reasons for actions
	// may change between versions: decisions that differ only in such wording count as equal.
	Recorded, Now []string
}

// Replay repeats the decisions of all steps that aren't incomplete, with the present core. The inputs are the recorded
// ones; the memory is that of the previous repeated decision. Replay returns the steps that differ.
func Replay(t *Transcript) []Difference {
	var out []Difference
	var r replayer
	for i := range t.Steps {
		s := &t.Steps[i]
		if s.Incomplete != "" {
			continue
		}
		today := r.step(s)
		if slices.Equal(wordless(s.Decision), wordless(today)) {
			continue
		}
		recorded, today := differ(s.Decision, today)
		out = append(out, Difference{Step: i, Line: s.Line, Time: s.Input.Now, Recorded: recorded, Now: today})
	}
	return out
}

// replayer repeats the decisions of the steps, one after the other.
type replayer struct {
	last turn
	// begun are today's actions that haven't ended according to the transcript.
	begun []pod.Action
}

func (r *replayer) step(s *Step) []string {
	if s.First {
		*r = replayer{}
	}
	in := s.Input
	if !s.Restored {
		in.Memory = r.last.d.Memory
	}
	in.InFlight, in.Results = slices.Clone(in.InFlight), slices.Clone(in.Results)
	r.keep(in)
	for i := range in.InFlight {
		r.own(&in.InFlight[i], in.Memory.Checkpoint)
	}
	for i := range in.Results {
		r.own(&in.Results[i].Action, in.Memory.Checkpoint)
	}
	now := turn{in: in, d: lifecycle.Decide(in)}
	r.begun = append(remaining(r.begun, in.Results), now.d.Actions...)
	text, _ := appendDecision(nil, &now, &r.last, s.base)
	r.last = now
	return lines(string(text))
}

// keep drops those actions of begun that are neither under way nor ended in the transcript, because the agent died
// while they ran.
func (r *replayer) keep(in lifecycle.Input) {
	r.begun = slices.DeleteFunc(r.begun, func(a pod.Action) bool {
		return find(in.InFlight, &a) < 0 &&
			!slices.ContainsFunc(in.Results, func(res pod.Result) bool {
				return find([]pod.Action{a}, &res.Action) >= 0
			})
	})
}

// own replaces a recorded action by the equal action in begun, because the core compares checkpoints by pointer. An
// action from before the first step isn't in begun. If the checkpoint of such an action equals current, the checkpoint
// of the memory, the action gets the pointer current.
func (r *replayer) own(a *pod.Action, current *pod.Checkpoint) {
	if at := find(r.begun, a); at >= 0 {
		*a = r.begun[at]
	} else if a.Checkpoint != nil && reflect.DeepEqual(a.Checkpoint, current) {
		a.Checkpoint = current
	}
}

func lines(text string) (out []string) {
	for line := range strings.Lines(text) {
		out = append(out, strings.TrimPrefix(strings.TrimSuffix(line, "\n"), decisionLead))
	}
	return out
}

// wordless returns the lines of a decision without wording that doesn't affect decisions.
func wordless(lines []string) (out []string) {
	for _, line := range lines {
		if strings.HasPrefix(line, becauseWord) {
			continue
		}
		if list, err := words.Split(line); err == nil && list[0] == doWord &&
			strings.HasPrefix(list[len(list)-1], "(") {
			line = strings.Join(list[:len(list)-1], " ")
		}
		out = append(out, line)
	}
	return out
}

// differ returns the lines that are in only one of the two lists.
func differ(a, b []string) (onlyA, onlyB []string) {
	if slices.Equal(a, b) {
		return nil, nil
	}
	onlyA, onlyB = without(a, b), without(b, a)
	if len(onlyA)+len(onlyB) == 0 {
		return a, b
	}
	return onlyA, onlyB
}

func without(a, b []string) (out []string) {
	count := map[string]int{}
	for _, line := range b {
		count[line]++
	}
	for _, line := range a {
		if count[line]--; count[line] < 0 {
			out = append(out, line)
		}
	}
	return out
}
