package pathelement_test

import (
	"testing"

	"github.com/deckhand-node/deckhand/internal/pathelement"
)

func TestCheck(t *testing.T) {
	for _, good := range []string{"a", "web-0.x_y", "...", "0123abcd-ef"} {
		if err := pathelement.Check("pod name", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "..", "/", "a/b", "../a", "a%2fb"} {
		if pathelement.Check("pod name", bad) == nil {
			t.Errorf("%q is taken for an element of a path", bad)
		}
	}
}
