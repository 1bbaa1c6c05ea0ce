package gates

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/deckhand-node/deckhand/internal/kit/suggest"
)

// State is a gate and whether it is on.
type State struct {
	Gate
	On bool
	// Given means that this gate was set by its name.
	Given bool
}

// Set has the state of each gate. It is immutable, and may be used concurrently. In the zero Set all gates are off;
// Resolve(nil) returns the defaults.
type Set struct {
	states []State // sorted by name
}

// Enabled reports whether a gate is on. Gates that kubelet 1.36 doesn't have are off.
func (s Set) Enabled(name string) bool {
	st := s.find(name)
	return st != nil && st.On
}

// All returns the states of all gates, sorted by name.
func (s Set) All() []State { return slices.Clone(s.states) }

func (s Set) find(name string) *State {
	i, ok := slices.BinarySearchFunc(s.states, name, func(st State, name string) int {
		return strings.Compare(st.Name, name)
	})
	if !ok {
		return nil
	}
	return &s.states[i]
}

// Problem is an error in the setting of a gate.
type Problem struct {
	// Gate is the name of a gate that was set, so that the line that sets it can be found.
	Gate string
	// Message is the text after the gate's name: "PodsAPi: unknown feature gate...".
	Message string
}

// maxGuesses limits how many unknown names get a suggestion: finding one takes time, and users don't read more of them.
const maxGuesses = 50

const unknown = "unknown feature gate: kubelet 1.36 has none of that name; if it belongs to a feature that has long " +
	"been stable, leave it out"

// Resolve returns the state of all gates. Gates that aren't in wanted follow AllAlpha or AllBeta, if set, and
// otherwise their default. It returns all errors, sorted by gate; the Set ignores unknown names and settings of
// locked gates.
func Resolve(wanted map[string]bool) (Set, []Problem) {
	all := All()
	s := Set{states: make([]State, len(all))}
	for i, g := range all {
		s.states[i] = State{Gate: g, On: value(&g, wanted)}
		_, s.states[i].Given = wanted[g.Name]
	}
	var problems []Problem
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		switch st := s.find(name); {
		case st == nil:
			message := unknown
			if len(problems) < maxGuesses {
				message = cmp.Or(guess(name, all), unknown)
			}
			problems = append(problems, Problem{name, message})
		case st.Locked && st.On != st.Default:
			problems = append(problems,
				Problem{name, fmt.Sprintf("can't be %t: the gate is %s and locked to %t; leave it out", st.On, st.Stage,
					st.Default)})
			st.On = st.Default
		}
	}
	problems = append(problems, s.unmet()...)
	slices.SortStableFunc(problems, func(a, b Problem) int { return strings.Compare(a.Gate, b.Gate) })
	return s, problems
}

// value returns whether a gate is on with the settings wanted, as if no gate were locked.
func value(g *Gate, wanted map[string]bool) bool {
	if on, given := wanted[g.Name]; given {
		return on
	}
	if on, given := wanted[together(g.Stage)]; given && together(g.Stage) != "" {
		return on
	}
	return g.Default
}

// together returns AllAlpha or AllBeta, the gate that sets all gates of stage s; "" for other stages.
func together(s Stage) string {
	switch s {
	case Alpha:
		return AllAlpha
	case Beta:
		return AllBeta
	default:
		return ""
	}
}

// unmet returns a problem for each gate that is on although a gate that it needs is off.
func (s Set) unmet() []Problem {
	var problems []Problem
	for i := range s.states {
		st := &s.states[i]
		if !st.On {
			continue
		}
		for _, name := range st.Needs {
			if need := s.find(name); !need.On {
				problems = append(problems, Problem{s.culprit(st, need), fmt.Sprintf(
					"%s (%s) needs %s (%s): have both on, or both off", st.Name, s.because(st), need.Name,
					s.because(need))})
			}
		}
	}
	return problems
}

// because returns a text that says whether a gate is on or off, and which setting is the cause.
func (s Set) because(st *State) string {
	word := onOff(st.On)
	if st.Given {
		return word
	}
	if all := s.find(together(st.Stage)); all != nil && all.Given {
		return word + " with " + all.Name
	}
	return word + " by default"
}

// culprit returns the gate to correct if st is on although need is off, and st needs need. It is the gate whose setting
// turned st on or need off.
func (s Set) culprit(st, need *State) string {
	for _, by := range []*State{st, need, s.find(together(st.Stage)), s.find(together(need.Stage))} {
		if by != nil && by.Given {
			return by.Name
		}
	}
	return st.Name
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// guess returns an error message that suggests the gate that an unknown name most likely means; empty if no gate has a
// similar name.
func guess(name string, all []Gate) string {
	const ofLetters = 5 // one in five letters may be wrong
	names := func(yield func(string) bool) {
		for i := range all {
			if !yield(all[i].Name) {
				return
			}
		}
	}
	if meant := suggest.Of(name, names, len(name)/ofLetters); meant != "" {
		return "unknown feature gate; did you mean " + meant + "?"
	}
	return ""
}
