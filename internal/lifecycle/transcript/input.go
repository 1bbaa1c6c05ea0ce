package transcript

import (
	"time"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript/words"
	"github.com/deckhand-node/deckhand/internal/pod"
)

// appendChanges appends the changes since prev of the inputs that have no special format.
func appendChanges(dst []byte, t *words.Type, v, prev words.Value, base time.Time) []byte {
	for _, f := range t.Fields() {
		if !special(f) {
			dst = f.AppendChanges(dst, inputLead, f.Of(v), f.Of(prev), base)
		}
	}
	return dst
}

// writable reports whether the inputs can be written: the elements of each list need distinct names.
func writable(t *words.Type, v words.Value) bool {
	for _, f := range t.Fields() {
		if !special(f) && !f.Unique(f.Of(v)) {
			return false
		}
	}
	return true
}

// appendInFlight writes the actions under way, unless they are exactly the expected actions, which follow from earlier
// actions and results.
func appendInFlight(dst []byte, actions, expected []pod.Action, base time.Time) []byte {
	if sameActions(actions, expected) {
		return dst
	}
	if len(actions) == 0 {
		return append(dst, inputLead+inFlightWord+" "+noneWord+"\n"...)
	}
	for i := range actions {
		dst = append(dst, inputLead+inFlightWord...)
		dst = append(appendAction(dst, &actions[i], base), '\n')
	}
	return dst
}

// appendMemory writes the memory, unless it is the memory that the previous decision left.
func appendMemory(dst []byte, mem, expected *lifecycle.Memory, base time.Time) []byte {
	t := formats().memory
	v, e := words.At(mem), words.At(expected)
	if t.Equal(v, e) {
		return dst
	}
	dst = append(dst, inputLead+memoryWord...)
	return append(t.AppendFields(dst, v, words.Value{}, base), '\n')
}
