// Package report is how the guest reports to the test on the host what it saw: one
// JSON object per line on the console, between whatever the kernel prints there.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// Line is one thing the guest reports. Either Fact or Failure is set.
type Line struct {
	// Fact names what was looked at ("guaranteed pod cpu.max"), Value is what was there.
	Fact  string `json:"fact,omitempty"`
	Value string `json:"value,omitempty"`
	// Failure says why the guest gave up.
	Failure string `json:"failure,omitempty"`
	// Milliseconds is when, counted from the guest's boot.
	Milliseconds int64 `json:"ms"`
}

// mark begins each line, so that a console message isn't taken for one.
const mark = "deckhand-guest "

// Write writes the line in one piece.
func Write(w io.Writer, l Line) error {
	text, err := json.Marshal(l)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%s%s\n", mark, text)
	return err
}

// Result is all that a guest reported.
type Result struct {
	// Facts by name.
	Facts map[string]string
	// Failures in order.
	Failures []string
	// Took is the guest's time from boot to its last line.
	Took time.Duration
}

// Parse picks the guest's lines out of its console's output.
func Parse(console string) (Result, error) {
	r := Result{Facts: map[string]string{}}
	for text := range strings.Lines(console) {
		_, object, ok := strings.Cut(text, mark)
		if !ok {
			continue
		}
		var l Line
		if err := json.Unmarshal([]byte(strings.TrimSpace(object)), &l); err != nil {
			return Result{}, fmt.Errorf("the guest's line %q: %w", strings.TrimSpace(text), err)
		}
		r.Took = time.Duration(l.Milliseconds) * time.Millisecond
		if l.Failure != "" {
			r.Failures = append(r.Failures, l.Failure)
			continue
		}
		if had, twice := r.Facts[l.Fact]; twice {
			return Result{}, fmt.Errorf("the guest reported %q twice: %q and %q", l.Fact, had, l.Value)
		}
		r.Facts[l.Fact] = l.Value
	}
	return r, nil
}
