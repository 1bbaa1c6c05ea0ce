package gates

import "fmt"

// Note is a message about a gate that was set.
type Note struct {
	Gate string
	// Message is the text after the gate's name.
	Message string
}

// NotActedOn lists the gates that were set but have no effect in this build, sorted by name.
func (s Set) NotActedOn() []Note {
	var notes []Note
	for i := range s.states {
		st := &s.states[i]
		switch {
		case !st.Given:
		case st.Name == AllAlpha || st.Name == AllBeta:
			if changed, inVain := s.switched(st.Name); inVain > 0 {
				notes = append(notes, Note{st.Name,
					fmt.Sprintf("%d of the %d gates that it turns %s change nothing in this build", inVain, changed,
						onOff(st.On))})
			}
		case !st.follows(st.On):
			notes = append(notes, Note{st.Name, st.why()})
		}
	}
	return notes
}

// why returns the reason why setting the gate has no effect.
func (g *Gate) why() string {
	switch g.Effect {
	case AlwaysOn:
		return "always on in this build: " + g.Acts
	case NeverOn:
		return "never on in this build: " + g.Acts
	default:
		return "changes nothing in a node agent: it is about " + g.Acts
	}
}

// switched returns how many gates the gate named by (AllAlpha or AllBeta) changed, and how many of those changes have
// no effect in this build.
func (s Set) switched(by string) (changed, inVain int) {
	for i := range s.states {
		st := &s.states[i]
		if st.Given || together(st.Stage) != by || st.On == st.Default {
			continue
		}
		changed++
		if !st.follows(st.On) {
			inVain++
		}
	}
	return changed, inVain
}

// Retiring lists the gates that were set although they are GA or deprecated, sorted by name. A later release removes
// these gates. That release rejects them as unknown and doesn't start.
func (s Set) Retiring() []Note {
	var notes []Note
	for i := range s.states {
		if st := &s.states[i]; st.Given && (st.Stage == GA || st.Stage == Deprecated) {
			notes = append(notes, Note{st.Name,
				fmt.Sprintf("the gate is %s, and a later release will refuse it as unknown: leave it out", st.Stage)})
		}
	}
	return notes
}
