package gates_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	cliflag "k8s.io/component-base/cli/flag"

	"github.com/deckhand-node/deckhand/internal/config/gates"
)

func TestParseFlag(t *testing.T) {
	for text, want := range map[string]map[string]bool{
		"":                         {},
		",":                        {},
		"A=true":                   {"A": true},
		" A = true ,B=f,,C=1":      {"A": true, "B": false, "C": true},
		"A=true,A=false":           {"A": false},
		"AllAlpha=TRUE,AllBeta=0,": {"AllAlpha": true, "AllBeta": false},
	} {
		got, err := gates.ParseFlag(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestParseFlagReportsAllThatIsWrong(t *testing.T) {
	got, err := gates.ParseFlag("A,B=true,C=yes,=true, ,D==true")
	if err == nil || got != nil {
		t.Fatalf("got %v, %v", got, err)
	}
	want := `"A" has no value: write A=true or A=false
"C=yes" is neither true nor false: write C=true or C=false
"=true" has no name: write NAME=true or NAME=false
" " has no name: write NAME=true or NAME=false
"D==true" is neither true nor false: write D=true or D=false`
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// It takes what the kubelet's own flag takes, but for an empty name, which the kubelet
// refuses a little later.
func FuzzParseFlag(f *testing.F) {
	for _, seed := range []string{"", "A=true,B=false", " A = T ,,B=0", "A", "=true", "A=x", "A=true=false", "\"A=true\"", "A=true\x00,\xff=1"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := gates.ParseFlag(text)
		want := map[string]bool{}
		refused := cliflag.NewMapStringBool(&want).Set(text)
		if _, nameless := want[""]; refused != nil || nameless {
			if err == nil || strings.TrimSpace(err.Error()) == "" {
				t.Fatalf("%q is taken as %v, the kubelet says %v", text, got, refused)
			}
			return
		}
		if err != nil {
			t.Fatalf("%q is refused: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q (-kubelet +here):\n%s", text, diff)
		}
		gates.Resolve(got) // has to cope with any name
	})
}
