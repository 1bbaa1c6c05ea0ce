// Command report reads `go test -json` on standard input and prints what a
// person wants to see of it: a line for each package, everything a failed test
// printed, and at the end the numbers. A skipped test counts as a failure: a test
// that can't run says what is missing, and `make test` installs it.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

func main() {
	failed, err := report(os.Stdin, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	if failed {
		os.Exit(1)
	}
}

// event is one line of `go test -json` (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Elapsed    float64
	Output     string
}

// tally is what is counted while events come in.
type tally struct {
	passed, failed, skipped int
	output                  map[string][]string
	packages                int
	bad                     []string
}

func report(in io.Reader, out io.Writer) (failed bool, err error) {
	t := &tally{output: map[string][]string{}}
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 1<<20), 64<<20)
	for lines.Scan() {
		var e event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			// What isn't JSON is go's own complaint.
			fmt.Fprintln(out, lines.Text())
			continue
		}
		t.take(e, out)
	}
	if err := lines.Err(); err != nil {
		return true, err
	}
	for _, what := range t.bad {
		fmt.Fprintln(out, what)
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	return t.failed > 0 || t.skipped > 0 || t.packages == 0 || len(t.bad) > 0, nil
}

func (t *tally) take(e event, out io.Writer) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		if e.Package == "" {
			key = e.ImportPath
		}
		t.output[key] = append(t.output[key], e.Output)
	case "build-fail":
		t.bad = append(t.bad, "FAIL to build "+e.ImportPath)
		t.print(e.ImportPath, out)
	case "pass":
		if e.Test == "" {
			t.packages++
			fmt.Fprintf(out, "ok   %s %.1fs\n", e.Package, e.Elapsed)
		} else {
			t.passed++
		}
		delete(t.output, key)
	case "skip":
		if e.Test != "" {
			t.skipped++
			t.bad = append(t.bad, "SKIP "+key)
			t.print(key, out)
		}
	case "fail":
		if e.Test == "" {
			fmt.Fprintf(out, "FAIL %s %.1fs\n", e.Package, e.Elapsed)
			t.bad = append(t.bad, "FAIL "+e.Package)
		} else {
			t.failed++
			t.bad = append(t.bad, "FAIL "+key)
		}
		t.print(key, out)
	}
}

// print prints what a test or package said, once.
func (t *tally) print(key string, out io.Writer) {
	for _, line := range t.output[key] {
		fmt.Fprint(out, line)
	}
	delete(t.output, key)
}
