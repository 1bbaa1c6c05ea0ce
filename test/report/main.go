// Command report runs `go test -json` and prints what a person wants to see of it: while it
// goes on, a line for each package and each test that fails; at the end, where nobody has to look for it,
// everything that what failed has said, which tests took longest, and the numbers. A skipped test
// counts as a failure: a test that can't run says what is missing, and `make test` installs it.
//
// The machines that tests run on are shared. Where a few tests fail, and nothing worse is seen than that, they are run
// once more, alone. Those that pass then are named: they depend on how busy the machine is, and have to be mended.
//
// Usage: report [flags of go test] -- packages
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
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

// run runs the tests, and those once more that may have failed by chance.
func run(ctx context.Context, args []string, out io.Writer) (failed bool, err error) {
	split := slices.Index(args, "--")
	if split < 0 {
		return true, errors.New("usage: report [flags of go test] -- packages")
	}
	flags, packages := args[:split:split], args[split+1:]
	first := newTally(out)
	if failed, err = first.goTest(ctx, append(flags, packages...)); !failed || err != nil {
		return failed, err
	}
	again := first.again()
	for _, pkg := range again {
		fmt.Fprintf(out, "\nOnce more, alone: %s %s\n", pkg.path, pkg.tests)
		second := newTally(out)
		if failed, err := second.goTest(ctx, append(flags, "-count=1", "-run", pkg.tests, pkg.path)); failed || err != nil {
			return true, err
		}
	}
	for _, pkg := range again {
		fmt.Fprintf(out, "PASSED ONLY WHEN IT RAN ALONE, mend it: %s %s\n", pkg.path, pkg.tests)
	}
	return len(again) == 0, nil
}

// goTest runs `go test -json`, and reports whether that is a failure.
func (t *tally) goTest(ctx context.Context, args []string) (failed bool, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdoutPipe()
	if err != nil {
		return true, err
	}
	if err := cmd.Start(); err != nil {
		return true, err
	}
	failed, err = t.report(in)
	ended := cmd.Wait()
	var status *exec.ExitError
	if ended != nil && !errors.As(ended, &status) {
		err = errors.Join(err, ended)
	}
	return failed || ended != nil, err
}

// report prints what comes in, and reports whether that is a failure: whatever `go test`
// calls one, and tests that were skipped, and no tests at all.
func (t *tally) report(in io.Reader) (failed bool, err error) {
	lines := bufio.NewReader(in)
	for err == nil {
		var line []byte
		if line, err = lines.ReadBytes('\n'); len(line) == 0 {
			continue
		}
		var e event
		if bad := json.Unmarshal(line, &e); bad != nil || e.Action == "" {
			// What isn't JSON is go's own complaint.
			fmt.Fprintf(t.out, "%s", line)
			continue
		}
		t.take(e)
	}
	if err != io.EOF {
		return true, err
	}
	return t.finish(), nil
}
