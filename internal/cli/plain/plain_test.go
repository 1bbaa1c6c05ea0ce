package plain

import "testing"

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain":               "plain",
		" a\n  b\tc ":         "a b c",
		"\x1b[2Jgone\r\x9b":   "�[2Jgone��",
		"a\u202eb":            "a�b",
		"schön 日本 \U0001f6a2": "schön 日本 \U0001f6a2",
	} {
		if got := Line(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestKeep(t *testing.T) {
	if got := Keep("  a  b\x1b"); got != "  a  b�" {
		t.Errorf("got %q", got)
	}
}
