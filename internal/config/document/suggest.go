package document

import (
	"fmt"
	"reflect"

	"github.com/deckhand-node/deckhand/internal/config/paths"
	"github.com/deckhand-node/deckhand/internal/nearest"
)

// suggest offers the field of the struct v that name comes nearest to: one that
// differs in upper and lower case, or by one or two slips of the hand.
func suggest(v reflect.Value, name string) string {
	names := func(yield func(string) bool) {
		for f := range paths.Fields(v) {
			if !yield(f.Name) {
				return
			}
		}
	}
	best := nearest.Of(name, names, min(2, (len(name)-1)/2)) // less than half of it may be wrong
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}
