package node_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/internal/runtime/memcri/node"
)

func TestExample(t *testing.T) {
	for _, c := range []struct {
		command []string
		want    node.Behaviour
	}{
		{nil, node.Behaviour{}},
		{[]string{"/web"}, node.Behaviour{}},
		{[]string{"/web", "sleep", "1h"}, node.Behaviour{Exits: true, ExitAfter: time.Hour}},
		{[]string{"/web", "exit", "3"}, node.Behaviour{Exits: true, ExitCode: 3}},
		{[]string{"exit", "3", "2s"}, node.Behaviour{Exits: true, ExitCode: 3, ExitAfter: 2 * time.Second}},
		{[]string{"exit", "three", "soon"}, node.Behaviour{Exits: true}},
		{[]string{"logs", "2"}, node.Behaviour{Exits: true, Output: []node.Line{{Text: "line 1"}, {Stderr: true, Text: "line 2"}}}},
		{[]string{"burst", "103"}, node.Behaviour{Exits: true, Output: []node.Line{{Text: strings.Repeat("x", 99)}, {Text: "xx"}}}},
		{[]string{"cat", "/dev/zero"}, node.Behaviour{Exits: true, ExitCode: 137, Reason: "OOMKilled"}},
		{[]string{"cat", "/etc/passwd"}, node.Behaviour{Exits: true}},
		{[]string{"ignore-term"}, node.Behaviour{IgnoreTerm: node.Forever, Output: []node.Line{{Text: "ignoring SIGTERM"}}}},
	} {
		if diff := cmp.Diff(c.want, node.Example(c.command)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.command, diff)
		}
	}
}
