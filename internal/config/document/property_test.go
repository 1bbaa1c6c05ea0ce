package document_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/config/configtest"
	"github.com/deckhand-node/deckhand/internal/config/document"
	"github.com/deckhand-node/deckhand/internal/config/paths"
)

// Any configuration laid over any other is a JSON merge patch, and each setting
// comes from the upper layer that gives it.
func TestLayIsAMergePatch(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		low := paths.YAML(configtest.Draw(r, "low"), nil)
		high := paths.YAML(configtest.Draw(r, "high"), nil)
		m := document.NewMerged()
		over, errs := document.Decode(high)
		under, more := document.Decode(low)
		if len(errs)+len(more) > 0 {
			r.Fatalf("%v %v in\n%s\n%s", errs, more, low, high)
		}
		m.Lay(document.File, "low", under)
		m.Lay(document.DropIn, "high", over)
		want, ok := patched(t, low, high)
		if !ok {
			r.Fatalf("the common reader doesn't read\n%s\n%s", low, high)
		}
		if diff := cmp.Diff(want, m.Config()); diff != "" {
			r.Fatalf("(-merge patch +Lay):\n%s", diff)
		}
		for path := range paths.Leaves(m.Config()) {
			want := document.Origin{}
			if line := under.LineOf(path); under.Given(path) {
				want = document.Origin{Kind: document.File, Name: "low", Line: line}
			}
			if line := over.LineOf(path); over.Given(path) {
				want = document.Origin{Kind: document.DropIn, Name: "high", Line: line}
			}
			if got := m.Origin(path); got != want {
				r.Fatalf("%s comes from %s, want %s", path, got, want)
			}
		}
	})
}
