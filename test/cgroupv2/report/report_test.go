package report

import (
	"strings"
	"testing"
	"time"
)

func TestParseWhatWasWritten(t *testing.T) {
	var console strings.Builder
	console.WriteString("Linux version 6\r\n")
	for _, l := range []Line{
		{Fact: "cpu.max", Value: "max 100000", Milliseconds: 1000},
		{Fact: "empty", Milliseconds: 2000},
		{Failure: "no\nluck", Milliseconds: 2500},
	} {
		if err := Write(&console, l); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Parse(strings.ReplaceAll(console.String(), "\n", "\r\n") + "reboot: Power down\r\n")
	if err != nil {
		t.Fatal(err)
	}
	if value, ok := r.Facts["empty"]; len(r.Facts) != 2 || r.Facts["cpu.max"] != "max 100000" || !ok || value != "" {
		t.Errorf("facts are %v", r.Facts)
	}
	if len(r.Failures) != 1 || r.Failures[0] != "no\nluck" || r.Took != 2500*time.Millisecond {
		t.Errorf("failures are %q after %v", r.Failures, r.Took)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, console := range map[string]string{
		"half a line":  mark + `{"fact":"a","val` + "\n",
		"a fact twice": mark + `{"fact":"a","value":"1"}` + "\n" + mark + `{"fact":"a","value":"1"}` + "\n",
	} {
		if r, err := Parse(console); err == nil {
			t.Errorf("%s: taken for %v", name, r)
		}
	}
}
