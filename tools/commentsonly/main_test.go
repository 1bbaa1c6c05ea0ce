package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const file = `//go:build linux

// Package p is documented.
package p

// T is a type.
type T int // of numbers

func f(x ...int) (a, b T) {
	g := "a" // first
	_ = g
	return T(x[0]), 2
}
`

func TestDifference(t *testing.T) {
	for name, c := range map[string]struct {
		new  string
		want string
	}{
		"nothing": {file, ""},
		"comments, and lines broken": {`//go:build linux

package p

// T is another
// comment.
type T int

func f(
	x ...int,
) (a, b T) {
	g := "a"
	_ = g
	/* second */
	return T(x[0]),
		2
}
`, ""},
		"a constraint": {"//go:build windows" + file[len("//go:build linux"):], "directives differ"},
		"no variadic":  {replace("x ...int", "x []int"), "code differs at line 9"},
		"an alias":     {replace("type T int", "type T = int"), "code differs at line 7"},
		"a literal":    {replace(`"a"`, `"b"`), "code differs at line 10"},
		"a name":       {replace("a, b T", "a, c T"), "code differs at line 9"},
		"a statement":  {replace("_ = g\n", "_ = g\n\tg = \"c\"\n"), "code differs at line 9"},
		"a directive":  {replace("// T is a type.", "//go:noinline"), "directives differ"},
		"not Go":       {"no Go", "after: p.go:1:1: expected 'package', found no"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := difference("p.go", []byte(file), []byte(c.new)); got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

func TestDirectives(t *testing.T) {
	const cgo = "package p\n\n// int f(void);\nimport \"C\"\n"
	const example = "package p\n\nfunc ExampleF() {\n\t// Output: 1\n}\n"
	for _, c := range [][2]string{
		{cgo, "package p\n\n// int g(void);\nimport \"C\"\n"},
		{example, "package p\n\nfunc ExampleF() {\n\t// Output: 2\n}\n"},
		{"package p\n\n//go:embed a\nvar a, b string\n\nvar c string\n", "package p\n\nvar a, b string\n\n//go:embed a\nvar c string\n"},
	} {
		if got := difference("p.go", []byte(c[0]), []byte(c[1])); got != "directives differ" {
			t.Errorf("%q: %q", c[1], got)
		}
	}
}

func TestCompare(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	commit := func(files map[string]string) {
		t.Helper()
		for name, content := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		run("add", "-A")
		run("commit", "-qm", "x")
	}
	run("init", "-q")
	commit(map[string]string{"comment.go": file, "code.go": file, "rest.md": "a", "gone.go": file, "equal.go": file})
	if err := os.Remove(filepath.Join(dir, "gone.go")); err != nil {
		t.Fatal(err)
	}
	commit(map[string]string{"comment.go": replace("a type", "one"), "code.go": replace("2", "3"), "rest.md": "b", "new.go": file})

	got, err := compare(dir, "HEAD~1", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"code.go: code differs at line 12", "gone.go: removed", "new.go: added", "rest.md: not Go"}
	if got.same != 1 || !slices.Equal(got.different, want) {
		t.Errorf("%+v, want 1 and %q", got, want)
	}
	if _, err := compare(dir, "HEAD", "nothing"); err == nil {
		t.Error("a revision that doesn't exist is no error")
	}
}

func replace(old, new string) string { return strings.Replace(file, old, new, 1) }
