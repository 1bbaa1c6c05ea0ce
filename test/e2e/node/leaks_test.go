package node

import "testing"

func TestMentions(t *testing.T) {
	for _, tc := range []struct {
		line, word string
		want       bool
	}{
		{`comment "deckhand's pod network on dhtest1"`, "dhtest1", true},
		{`comment "deckhand's pod network on dhtest10"`, "dhtest1", false},
		{`iifname dhtest10 oifname dhtest1`, "dhtest1", true},
		{"ip saddr 10.214.1.0/24 masquerade", "10.214.1.", true},
		{"ip saddr 10.214.10.0/24 masquerade", "10.214.1.", false},
		{"", "dhtest1", false},
	} {
		if got := mentions(tc.line, tc.word); got != tc.want {
			t.Errorf("%q in %q: %v", tc.word, tc.line, got)
		}
	}
}
