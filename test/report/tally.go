package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// tally is what is known while events come in.
type tally struct {
	out                     io.Writer
	passed, failed, skipped int
	// output holds what every package, build and unfinished test has said.
	output map[subject][]string
	// running holds the packages and tests that have begun and not ended.
	running map[subject]bool
	// hasParts holds the tests that have subtests.
	hasParts map[subject]bool
	// badTests counts by package the tests that failed, or were cut off.
	badTests map[string]int
	packages int
	bad      []problem
	times    []timed
}

// subject is what says something: a package, or with Test one of its tests; or a
// build, which has the brackets of `go list` in its name.
type subject struct{ pkg, test string }

func (s subject) String() string { return strings.TrimSuffix(s.pkg+" "+s.test, " ") }

// problem is what went wrong with a subject, and what that has said.
type problem struct {
	subject
	what   string
	output []string
}

type timed struct {
	subject
	seconds float64
}

func newTally(out io.Writer) *tally {
	return &tally{out: out, output: map[subject][]string{}, running: map[subject]bool{}, hasParts: map[subject]bool{}, badTests: map[string]int{}}
}

func (t *tally) take(e event) {
	s := subject{e.Package, e.Test}
	if e.Package == "" {
		s = subject{pkg: e.ImportPath}
	}
	switch e.Action {
	case "output", "build-output":
		t.output[s] = append(t.output[s], e.Output)
	case "build-fail":
		t.wrong("FAIL to build "+e.ImportPath, s)
	case "start":
		t.running[s] = true
	case "run":
		t.running[s] = true
		if i := strings.LastIndex(e.Test, "/"); i >= 0 {
			t.hasParts[subject{e.Package, e.Test[:i]}] = true
		}
	case "pass", "fail", "skip":
		delete(t.running, s)
		if e.Test == "" {
			t.packageEnded(e, s)
		} else {
			t.testEnded(e, s)
		}
		delete(t.output, s)
	}
}

func (t *tally) testEnded(e event, s subject) {
	if !t.hasParts[s] {
		t.times = append(t.times, timed{s, e.Elapsed})
	}
	switch e.Action {
	case "pass":
		t.passed++
	case "skip":
		t.skipped++
		t.wrong("SKIP "+s.String(), s)
	default:
		t.testFailed("FAIL "+s.String(), s)
	}
}

func (t *tally) testFailed(what string, s subject) {
	t.failed++
	t.badTests[s.pkg]++
	fmt.Fprintln(t.out, what)
	t.wrong(what, s)
}

// packageEnded takes in a package's end. One without tests is skipped, which is fine.
func (t *tally) packageEnded(e event, s subject) {
	if e.Action == "skip" {
		return
	}
	t.packages++
	if e.Action == "pass" {
		fmt.Fprintf(t.out, "ok   %s %.1fs\n", e.Package, e.Elapsed)
		return
	}
	t.abort(e.Package)
	fmt.Fprintf(t.out, "FAIL %s %.1fs\n", e.Package, e.Elapsed)
	if t.badTests[e.Package] > 0 && len(t.output[s]) <= 1 {
		return // its tests say it all: the one line is that it failed
	}
	if t.badTests[e.Package] == 0 {
		t.failed++ // that isn't a test's fault: it is TestMain's, say, or the build's
	}
	what := "FAIL " + e.Package
	if e.FailedBuild != "" {
		what += ": " + e.FailedBuild + " can't be built"
	}
	t.wrong(what, s)
}

// abort records that the tests of a package that are running will never end: the
// time was up, or the program has ended.
func (t *tally) abort(pkg string) {
	left := slices.SortedFunc(maps.Keys(t.running), func(a, b subject) int { return cmp.Compare(a.test, b.test) })
	for _, s := range left {
		if s.pkg == pkg && s.test != "" {
			delete(t.running, s)
			t.testFailed("FAIL "+s.String()+neverEnded, s)
		}
	}
}

// wrong keeps a problem, with what its subject has said, for the end.
func (t *tally) wrong(what string, s subject) {
	t.bad = append(t.bad, problem{s, what, shorten(t.output[s])})
	delete(t.output, s)
}

// shownLogs is how many of the messages that a test has logged are shown in short, shownBytes how much of each.
const shownLogs, shownBytes = 12, 300

// logged is the first line of what a test has logged or failed with.
var logged = regexp.MustCompile(`^    [^ ]+\.go:\d+: `)

// said prints the beginnings of the first messages of a test: why it failed is among them, and what
// follows, the logs of all that ran, can be too long where only the end of what is printed is kept.
func (p *problem) said(out io.Writer) {
	shown := 0
	for _, line := range p.output {
		if logged.MatchString(line) && shown < shownLogs {
			shown++
			line = strings.TrimSuffix(line, "\n")
			fmt.Fprintln(out, line[:min(len(line), shownBytes)])
		}
	}
}

// neverEnded is said of a test that was cut off.
const neverEnded = ": it never ended"

// slowest is how many tests are shown for the time they took.
const slowest = 10

// finish prints the summary, and reports whether all this is a failure.
func (t *tally) finish() (failed bool) {
	for s := range maps.Clone(t.running) {
		if s.test == "" { // `go test` itself was ended
			delete(t.running, s)
			t.packageEnded(event{Action: "fail", Package: s.pkg}, s)
		}
	}
	for _, p := range t.bad {
		fmt.Fprintf(t.out, "\n--- %s\n", p.what)
		for _, line := range p.output {
			fmt.Fprint(t.out, line)
		}
	}
	if len(t.bad) > 0 {
		fmt.Fprint(t.out, "\nIn short:\n")
		for _, p := range t.bad {
			fmt.Fprintln(t.out, " ", p.what)
			p.said(t.out)
		}
	}
	slices.SortStableFunc(t.times, func(a, b timed) int { return cmp.Compare(b.seconds, a.seconds) })
	if len(t.times) > 0 {
		fmt.Fprint(t.out, "\nThe slowest tests:\n")
	}
	for _, s := range t.times[:min(len(t.times), slowest)] {
		fmt.Fprintf(t.out, "%8.1fs %s\n", s.seconds, s.subject)
	}
	fmt.Fprintf(t.out, "%d passed, %d failed, %d skipped\n", t.passed, t.failed, t.skipped)
	return t.failed > 0 || t.skipped > 0 || t.packages == 0 || len(t.bad) > 0
}
