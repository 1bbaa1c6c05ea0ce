package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	for _, c := range []struct {
		name, in string
		failed   bool
		want     []string
	}{
		{"pass", `{"Action":"output","Package":"p","Test":"T","Output":"quiet\n"}
{"Action":"pass","Package":"p","Test":"T"}
{"Action":"pass","Package":"p","Elapsed":1.5}`, false, []string{"ok   p 1.5s", "1 passed, 0 failed, 0 skipped"}},
		{"fail", `{"Action":"output","Package":"p","Test":"T","Output":"why\n"}
{"Action":"fail","Package":"p","Test":"T"}
{"Action":"fail","Package":"p"}`, true, []string{"--- FAIL p T\nwhy\n", "0 passed, 1 failed, 0 skipped"}},
		{"fail in short", `{"Action":"output","Package":"p","Test":"T","Output":"    t_test.go:7: why\n"}
{"Action":"output","Package":"p","Test":"T","Output":"        at length\n"}
{"Action":"fail","Package":"p","Test":"T"}
{"Action":"fail","Package":"p"}`, true, []string{"        at length\n", "In short:\n  FAIL p T\n    t_test.go:7: why\n\nThe slowest"}},
		{"skip", `{"Action":"output","Package":"p","Test":"T","Output":"no kernel\n"}
{"Action":"skip","Package":"p","Test":"T"}
{"Action":"pass","Package":"p"}`, true, []string{"SKIP p T\nno kernel\n", "1 skipped"}},
		{"no test files", `{"Action":"start","Package":"q"}
{"Action":"skip","Package":"q"}
{"Action":"pass","Package":"p","Test":"T"}
{"Action":"pass","Package":"p"}`, false, []string{"1 passed, 0 failed, 0 skipped"}},
		{"build", `{"Action":"build-output","ImportPath":"p","Output":"syntax error\n"}
{"Action":"build-fail","ImportPath":"p"}`, true, []string{"FAIL to build p\nsyntax error\n"}},
		{"not JSON", "go: no such tool\n", true, []string{"go: no such tool\n0 passed"}},
		{"nothing ran", ``, true, []string{"0 passed"}},
		{"go test was ended", `{"Action":"start","Package":"p"}
{"Action":"run","Package":"p","Test":"T"}
{"Action":"output","Package":"p","Test":"T","Output":"so far\n"}`, true, []string{"FAIL p T: it never ended\nso far\n", "0 passed, 1 failed, 0 skipped"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			expect(t, c.in, c.failed, c.want...)
		})
	}
}

// expect reports what comes in, and looks for what has to come out, in this order.
func expect(t *testing.T, in string, wantFailed bool, want ...string) string {
	t.Helper()
	var out bytes.Buffer
	failed, err := newTally(&out).report(strings.NewReader(in))
	if err != nil || failed != wantFailed {
		t.Errorf("failed = %v, err = %v, want failed = %v\n%s", failed, err, wantFailed, out.String())
	}
	rest := out.String()
	for _, w := range want {
		_, after, found := strings.Cut(rest, w)
		if !found {
			t.Errorf("output doesn't have %q, or in this order:\n%s", w, out.String())
			return out.String()
		}
		rest = after
	}
	if last := out.String()[strings.LastIndex(strings.TrimSuffix(out.String(), "\n"), "\n")+1:]; !regexp.MustCompile(`^\d+ passed, \d+ failed, \d+ skipped\n$`).MatchString(last) {
		t.Errorf("the last line is %q", last)
	}
	return out.String()
}

func TestTheSlowestTestsAreShown(t *testing.T) {
	var in strings.Builder
	for i := range 15 {
		fmt.Fprintf(&in, `{"Action":"run","Package":"p","Test":"T/%d"}
{"Action":"pass","Package":"p","Test":"T/%d","Elapsed":%d}
`, i, i, i)
	}
	in.WriteString(`{"Action":"pass","Package":"p","Test":"T","Elapsed":105}
{"Action":"pass","Package":"p"}`)
	out := expect(t, in.String(), false, "The slowest tests:\n    14.0s p T/14\n    13.0s p T/13\n", "5.0s p T/5\n16 passed")
	if strings.Contains(out, "105.0s") {
		t.Errorf("a test counts for its parts:\n%s", out)
	}
}

// TestWhatGoTestCallsAFailure runs go test on packages that fail in every way there is.
func TestWhatGoTestCallsAFailure(t *testing.T) {
	for _, c := range []struct {
		name, code string
		want       []string
	}{
		{"a build", `func TestX(t *testing.T) { nothing() }`, []string{"undefined: nothing", "FAIL m: m [m.test] can't be built", "0 passed, 1 failed"}},
		{"vet", `func TestX(t *testing.T) { fmt.Printf("%d", "a") }`, []string{"wrong type string", "0 passed, 1 failed"}},
		{"TestMain", `func TestMain(*testing.M) { fmt.Println("no root"); os.Exit(1) }`, []string{"--- FAIL m\nno root\n", "0 passed, 1 failed"}},
		{"an exit", `func TestX(*testing.T) { fmt.Println("bye"); os.Exit(3) }`, []string{"--- FAIL m TestX: it never ended\n", "bye\n", "0 passed, 1 failed"}},
		{"a panic", `func TestX(*testing.T) { panic("oh dear") }; func TestY(*testing.T) {}`, []string{"--- FAIL m TestX\n", "panic: oh dear", "passed, 1 failed"}},
		{"a timeout", `func TestX(t *testing.T) { t.Run("part", func(*testing.T) { fmt.Println("waits"); select {} }) }`,
			[]string{"--- FAIL m TestX/part: it never ended\n", "waits\n", "panic: test timed out", "0 passed, 2 failed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			code := "package m\nimport (\"fmt\"; \"os\"; \"testing\")\nvar _ = fmt.Sprint\nvar _ = os.Exit\n" + c.code
			for name, text := range map[string]string{"go.mod": "module m\n", "m_test.go": code} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			limit := "5m"
			if c.name == "a timeout" {
				limit = "3s"
			}
			cmd := exec.CommandContext(t.Context(), "go", "test", "-json", "-timeout", limit, ".")
			cmd.Dir = dir
			out, err := cmd.Output()
			if err == nil {
				t.Fatalf("go test calls it well:\n%s", out)
			}
			expect(t, string(out), true, c.want...)
		})
	}
}

// TestFlakesAreDistinguishedFromFailures runs packages of which some fail at first.
func TestFlakesAreDistinguishedFromFailures(t *testing.T) {
	const once = `if _, err := os.Stat(t.Name()); err != nil { os.WriteFile(t.Name(), nil, 0o600); t.Error("busy") }`
	for _, c := range []struct {
		name, code string
		failed     bool
		want, not  string
	}{
		{"by chance", "func TestX(t *testing.T) { " + once + " }; func TestY(t *testing.T) {}", false, "PASSED ONLY WHEN IT RAN ALONE, mend it: m ^(TestX)$\n", "0 passed"},
		{"a part, by chance", `func TestX(t *testing.T) { t.Run("part", func(t *testing.T) { os.MkdirAll("TestX", 0o700); ` + once + " }) }", false, "mend it: m ^(TestX)$\n", ""},
		{"always", `func TestX(t *testing.T) { t.Error("broken") }`, true, "Once more, alone: m ^(TestX)$\n", "mend it"},
		{"one by chance, one always", "func TestX(t *testing.T) { " + once + ` }; func TestY(t *testing.T) { t.Error("broken") }`, true, "Once more, alone: m ^(TestX|TestY)$\n", "mend it"},
		{"a panic", "func TestX(t *testing.T) { " + once + `; if t.Failed() { panic("oh dear") } }`, true, "panic: oh dear", "Once more"},
		{"a data race", "func TestX(t *testing.T) { " + once + `; if t.Failed() { t.Log("WARNING: DATA RACE") } }`, true, "DATA RACE", "Once more"},
		{"a skip", "func TestX(t *testing.T) { " + once + `; t.Skip() }; func TestY(t *testing.T) { t.Skip("no kernel") }`, true, "SKIP m TestY", "Once more"},
		{"TestMain", "func TestMain(m *testing.M) { os.Exit(m.Run() + 1) }; func TestX(t *testing.T) {}", true, "FAIL m", "Once more"},
		{"many", "func one(t *testing.T) { " + once + " }; func Test1(t *testing.T) { one(t) }; func Test2(t *testing.T) { one(t) }; func Test3(t *testing.T) { one(t) }; " +
			"func Test4(t *testing.T) { one(t) }; func Test5(t *testing.T) { one(t) }; func Test6(t *testing.T) { one(t) }", true, "0 passed, 6 failed", "Once more"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			code := "package m\nimport (\"os\"; \"testing\")\nvar _ = os.Exit\n" + c.code
			for name, text := range map[string]string{"go.mod": "module m\n", "m_test.go": code} {
				if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var out bytes.Buffer
			failed, err := run(t.Context(), []string{"-timeout", "5m", "--", "."}, &out)
			text := out.String()
			if err != nil || failed != c.failed || !strings.Contains(text, c.want) || c.not != "" && strings.Contains(text, c.not) {
				t.Errorf("failed = %v, err = %v, want failed = %v, with %q and without %q:\n%s", failed, err, c.failed, c.want, c.not, text)
			}
		})
	}
}

func TestDumpsOfGoroutinesAreShortened(t *testing.T) {
	var dump []string
	add := func(format string, args ...any) {
		dump = append(dump, fmt.Sprintf(format, args...)+"\n")
	}
	stack := func(n int, depth int, function string) {
		add("goroutine %d [select, 10 minutes]:", n)
		for i := range depth {
			add("%s(0x%x)", function, i)
			add("\t/src/x.go:%d +0x1", i)
		}
		add("")
	}
	add("panic: test timed out after 10m0s")
	add("")
	stack(1, 2, "testing.alarm")
	stack(2, 100, ours+"internal/worker.Deep")
	for i := range 1000 {
		stack(i+3, 3, "net/http.serve")
	}
	for i := range 100 {
		stack(i+2000, 3, ours+"internal/worker.Run")
	}
	add("FAIL")
	got := strings.Join(shorten(dump), "")
	for _, want := range []string{"panic: test timed out", "testing.alarm(0x1)", "worker.Deep(0x0)", "worker.Run(0x2)", "FAIL\n", "(and 1062 more goroutines)"} {
		if !strings.Contains(got, want) {
			t.Errorf("it doesn't have %q", want)
		}
	}
	if n := strings.Count(got, "\n"); n > 400 || strings.Contains(got, "http.serve") {
		t.Errorf("%d lines:\n%s", n, got)
	}
	said := []string{"a\n", "\n", "goroutines are fine\n", "b\n"}
	if same := shorten(said); strings.Join(same, "") != strings.Join(said, "") {
		t.Errorf("what isn't a dump has changed: %q", same)
	}
}
