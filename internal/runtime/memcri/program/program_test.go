package program_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/internal/runtime/memcri/program"
)

func TestExample(t *testing.T) {
	for _, c := range []struct {
		command []string
		want    program.Behaviour
	}{
		{nil, program.Behaviour{}},
		{[]string{"/web"}, program.Behaviour{}},
		{[]string{"/web", "sleep", "1h"}, program.Behaviour{Exits: true, ExitAfter: time.Hour}},
		{[]string{"/web", "exit", "3"}, program.Behaviour{Exits: true, ExitCode: 3}},
		{[]string{"exit", "3", "2s"}, program.Behaviour{Exits: true, ExitCode: 3, ExitAfter: 2 * time.Second}},
		{[]string{"exit", "three", "soon"}, program.Behaviour{Exits: true}},
		{[]string{"logs", "2"}, program.Behaviour{Exits: true, Output: []program.Line{{Text: "line 1"}, {Stderr: true, Text: "line 2"}}}},
		{[]string{"burst", "103"}, program.Behaviour{Exits: true, Output: []program.Line{{Text: strings.Repeat("x", 99)}, {Text: "xx"}}}},
		{[]string{"cat", "/dev/zero"}, program.Behaviour{Exits: true, ExitCode: 137, Reason: "OOMKilled"}},
		{[]string{"cat", "/etc/passwd"}, program.Behaviour{Exits: true}},
		{[]string{"ignore-term"}, program.Behaviour{IgnoreTerm: program.Forever, Output: []program.Line{{Text: "ignoring SIGTERM"}}}},
	} {
		if diff := cmp.Diff(c.want, program.Example(c.command)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.command, diff)
		}
	}
}
