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

// TestCutMiddle: how an error begins and ends stays.
func TestCutMiddle(t *testing.T) {
	for _, tc := range []struct {
		text  string
		width int
		want  string
	}{
		{"short", 5, "short"}, {"abcdefghijklmno", 12, "abcd … klmno"}, {"start it: no, such command, file is missing", 24, "start … is missing"}, {"ääääääöööööö", 9, "äää … ööö"},
	} {
		if got := CutMiddle(tc.text, tc.width); got != tc.want {
			t.Errorf("CutMiddle(%q, %d): got %q, want %q", tc.text, tc.width, got, tc.want)
		}
	}
}

// TestNarrow: the last column is cut where enough of it is left; else the terminal wraps.
func TestNarrow(t *testing.T) {
	row := func() []string { return []string{"web", "Running", "the reason is a long one, as most are"} }
	for width, want := range map[int]string{
		0:  "web   Running   the reason is a long one, as most are",
		40: "web   Running   the reason is a long on…",
		36: "web   Running   the reason is a lon…",
		35: "web   Running   the reason is a long one, as most are",
		10: "web   Running   the reason is a long one, as most are",
	} {
		if got := (&Table{MaxWidth: width}).Lines(row()); got[0] != want {
			t.Errorf("%d characters: %q, want %q", width, got[0], want)
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
