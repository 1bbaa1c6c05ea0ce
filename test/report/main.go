// Command report reads `go test -json` on standard input and prints what a
// person wants to see of it: while it goes on, a line for each package and each test
// that fails; at the end, where nobody has to look for it, everything that what failed has
// said, which tests took longest, and the numbers. A skipped test counts as a failure: a test
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
	// FailedBuild is the ImportPath that a package failed for.
	FailedBuild string
}

// report prints what comes in, and reports whether that is a failure: whatever `go test`
// calls one, and tests that were skipped, and no tests at all.
func report(in io.Reader, out io.Writer) (failed bool, err error) {
	t := newTally(out)
	lines := bufio.NewReader(in)
	for err == nil {
		var line []byte
		if line, err = lines.ReadBytes('\n'); len(line) == 0 {
			continue
		}
		var e event
		if bad := json.Unmarshal(line, &e); bad != nil || e.Action == "" {
			// What isn't JSON is go's own complaint.
			fmt.Fprintf(out, "%s", line)
			continue
		}
		t.take(e)
	}
	if err != io.EOF {
		return true, err
	}
	return t.finish(), nil
}
