package safeopen_test

import (
	"testing"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

func TestCheck(t *testing.T) {
	for _, good := range []string{"a", "web-0.x_y", "...", "0123abcd-ef"} {
		if err := safeopen.Check("pod name", good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", ".", "..", "/", "a/b", "../a", "a%2fb"} {
		if safeopen.Check("pod name", bad) == nil {
			t.Errorf("%q is taken for an element of a path", bad)
		}
	}
}
