package show

import (
	"strings"
	"testing"
)

func TestColumnsLineUpAcrossWrites(t *testing.T) {
	var table Table
	var out strings.Builder
	for _, rows := range [][][]string{
		{{"NAME", "STATUS", "REASON"}, {"web", "Running", ""}, {"  ü", "", "first\n  second"}},
		{{"a-long-name", "x", "y"}},
		{{"b", "x", "y"}},
	} {
		if err := table.Write(&out, rows...); err != nil {
			t.Fatal(err)
		}
	}
	want := `NAME   STATUS    REASON
web    Running
  ü              first second
a-long-name   x         y
b             x         y
`
	if out.String() != want {
		t.Errorf("got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func TestCut(t *testing.T) {
	for _, tc := range []struct {
		line  string
		width int
		want  string
	}{
		{"abcdef", 0, "abcdef"}, {"abcdef", 6, "abcdef"}, {"abcdef", 5, "abcd…"}, {"ab   def", 5, "ab…"}, {"äöü", 3, "äöü"}, {"ab", 1, "…"},
	} {
		if got := CutLine(tc.line, tc.width); got != tc.want {
			t.Errorf("Cut(%q, %d): got %q, want %q", tc.line, tc.width, got, tc.want)
		}
	}
}

// TestCellsSteerNothing: what a container has written is shown, not obeyed.
func TestCellsSteerNothing(t *testing.T) {
	got := new(Table).Lines([]string{"  a\x1b[2J\u009b\u202e\x7f", "b\rc\x07"})
	if want := "  a�[2J���   b�c�"; len(got) != 1 || got[0] != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
