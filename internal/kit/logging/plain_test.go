package logging

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/kit/terminal"
)

// called is a value with a String method.
type called string

func (c called) String() string { return string(c) }

// TestForgedLines: whatever a name or a message is, each line is one that was logged, and nothing in it steers a terminal.
func TestForgedLines(t *testing.T) {
	header := regexp.MustCompile(`^[IWEF]\d{4} `)
	for _, evil := range []string{
		"a\nE1128 12:00:00.000000       1 forged.go:1] \"Pod deleted\"", "a\r\nE1128 12:00:00.000000       1 forged.go:1] x", "a\rE1128 12:00:00.000000       1 forged.go:1] x",
		"\x00", "\x1b]0;x\x07\x1b[2J", "a\u2028b\u202eb", "\xff\xfe", "a\" forged=\"b", "a\n\x1b[1mb", "\u009b31m",
	} {
		for _, format := range []string{"text", "json"} {
			var out bytes.Buffer
			l, err := Open(Config{Format: format, Out: &out, Err: &out})
			if err != nil {
				t.Fatal(err)
			}
			log, n := l.Logger(), 0
			for _, value := range []any{evil, errors.New(evil), called(evil), []string{evil}, klog.KRef(evil, "b"), klog.KRef("a", evil), struct{ Name string }{evil}, map[string]string{"a": evil}} {
				log.Info("It happened", "key", value, "last", 1)
				log.Error(errors.New(evil), "It failed", "key", value, "last", 1)
				log.WithValues("key", value).Info("It happened", "last", 1)
				n += 3
			}
			headers := 0
			for line := range strings.Lines(out.String()) {
				if header.MatchString(line) || format == "json" {
					headers++
				}
				if format == "text" && !terminal.IsBlock(line) || strings.ContainsAny(line, "\x00\x1b\r") {
					t.Errorf("%q, %s: %q", evil, format, line)
				}
			}
			if headers != n {
				t.Errorf("%q, %s: %d lines begin, of %d that were logged:\n%s", evil, format, headers, n, &out)
			}
			if strings.Contains(out.String(), `="b" last`) || strings.Contains(out.String(), `forged="b"`) {
				t.Errorf("%q, %s: a key is forged:\n%s", evil, format, &out)
			}
		}
	}
}

// TestPlainLines are written as they are, without being copied.
func TestPlainLines(t *testing.T) {
	line := []byte("I1128 12:00:00.000000       1 a.go:1] \"It happened\" err=<\n\tone\n\ttwo\n >\n")
	var out bytes.Buffer
	if n, err := (plain{&out}).Write(line); n != len(line) || err != nil || out.String() != string(line) {
		t.Errorf("%d, %v: %q", n, err, &out)
	}
	if allocs := testing.AllocsPerRun(100, func() { _, _ = (plain{io.Discard}).Write(line) }); allocs > 0 {
		t.Errorf("%v allocations", allocs)
	}
	out.Reset()
	if n, err := (plain{&out}).Write([]byte("é\x1b[m ü\n")); n != 9 || err != nil || out.String() != "é\uFFFD[m ü\n" {
		t.Errorf("%d, %v: %q", n, err, &out)
	}
	fail := plain{failing{}}
	if n, err := fail.Write([]byte("\x00")); n != 0 || err == nil {
		t.Error(fmt.Sprint(n), err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("full") }
