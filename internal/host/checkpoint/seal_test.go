package checkpoint_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
)

func TestSealAndOpen(t *testing.T) {
	text, err := checkpoint.Seal(2, map[string]int{"a": 1})
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]int
	if err := checkpoint.Open(text, 2, &got); err != nil || got["a"] != 1 {
		t.Errorf("%v, %v", got, err)
	}
	if err := checkpoint.Open(text, 1, &got); !errors.Is(err, checkpoint.ErrNewer) {
		t.Errorf("a newer version: %v", err)
	}
	for what, tc := range map[string]struct {
		text []byte
		want string
	}{
		"another version": {text, "it is of format 2"},
		"changed":         {bytes.Replace(text, []byte(`"a":1`), []byte(`"a":2`), 1), "checksum"},
		"cut short":       {text[:len(text)-1], "unexpected end"},
	} {
		version := 2
		if what == "another version" {
			version = 3
		}
		if err := checkpoint.Open(tc.text, version, &got); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
