package terminal

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"
	"testing/iotest"
)

func TestLine(t *testing.T) {
	for in, want := range map[string]string{
		"plain":               "plain",
		" a\n  b\tc ":         "a b c",
		"\x1b[2Jgone\r\x9b":   "�[2Jgone��",
		"a\u202eb":            "a�b",
		"\u009b31m\x7f\u2066": "�31m��",
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

// TestIs: it is what Keep leaves as it is, whatever the character and beside whatever.
func TestIs(t *testing.T) {
	list := []string{"", "plain", "schön 日本", "\ufffd", "\x9b", "ü\x9b", "\xe6\x97"}
	for r := rune(0); r < 0x3000; r++ {
		list = append(list, string(r), "ü"+string(r))
	}
	for _, text := range list {
		if got, want := Is(text), Keep(text) == text; got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	for text, want := range map[string]bool{"a\n\tb\n": true, "ü\n\tb\n": true, "a\rb\n": false, "a\nü\u202e": false} {
		if got := IsBlock(text); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
}

func TestWriter(t *testing.T) {
	const in, want = "a\tb\n\x1b[2Jschön 日本\U0001f6a2\u009b\x9b\u202e\r\n", "a\tb\n�[2Jschön 日本\U0001f6a2����\n"
	for name, r := range map[string]io.Reader{
		"at once":      bytes.NewBufferString(in),
		"byte by byte": iotest.OneByteReader(bytes.NewBufferString(in)),
	} {
		var out bytes.Buffer
		n, err := io.Copy(NewWriter(&out), r)
		if err != nil || n != int64(len(in)) || out.String() != want {
			t.Errorf("%s: got %q, %d, %v, want %q", name, out.String(), n, err, want)
		}
	}
	var out bytes.Buffer
	if _, err := NewWriter(&out).Write([]byte("\x9b\x80\x80\x80\x80")); err != nil || out.String() != "�����" {
		t.Errorf("what is no text at all: %q, %v", out.String(), err)
	}
}

func TestJSON(t *testing.T) {
	text := "a\x00\x1b\"\\\t\u007f\u0085\u009b\u061c\u202e\u2066\u2028ü日\U0001f6a2\ufffd"
	in := append([]byte("{\n  "), mustMarshal(t, text)...)
	in = append(in, ": 1\n}"...)
	got := JSON(in)
	if !IsBlock(string(got)) {
		t.Errorf("got %q", got)
	}
	var back map[string]int
	if err := json.Unmarshal(got, &back); err != nil || back[text] != 1 {
		t.Errorf("got %v, %v", back, err)
	}
	if got := JSON([]byte("\"\x9b\"")); string(got) != `"\ufffd"` {
		t.Errorf("got %q", got)
	}
	plain := []byte(`{"ü": "\u009b"}`)
	if got := JSON(plain); &got[0] != &plain[0] {
		t.Error("copied for nothing")
	}
}

func mustMarshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
