package archtest

import (
	"context"
	"go/ast"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// killed are tests that the Makefile leaves out of the step with the race detector, everywhere.
var killed = regexp.MustCompile(`^TestKilled(|AtAnyStep|AtEveryStep|Anywhere)$`)

// TestNoTestIsLeftOut: a package with such a test, or with the suite of volumes, is in the Makefile's list for the step
// without the race detector. In another package the test would run in neither step.
func TestNoTestIsLeftOut(t *testing.T) {
	out, err := exec.Command("make", "--silent", "--directory=../..", "--eval=show-list:;@echo $(WITHOUT_RACE_IN)",
		"show-list").Output()
	if err != nil {
		t.Fatal(err)
	}
	list := strings.Fields(string(out))
	if len(list) == 0 {
		t.Fatal("the Makefile has no WITHOUT_RACE_IN")
	}
	eachFile(t, func(dir, name string, f *ast.File, _ *token.FileSet) {
		if !strings.HasSuffix(name, "_test.go") || slices.Contains(list, "./"+dir) || path.Base(dir) == "volumetest" {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && killed.MatchString(n.Name.Name) {
					t.Errorf("%s: %s runs neither with the race detector nor without it: add the package to WITHOUT_RACE_IN",
						dir, n.Name.Name)
				}
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "volumetest" && n.Sel.Name == "Run" {
					t.Errorf("%s: kills of volumetest.Run don't run: add the package to WITHOUT_RACE_IN", dir)
				}
			}
			return true
		})
	})
}

// TestAFailedUnitTestEndsTheBuilds: `make test` ends what is built beside the unit tests as soon as one of these fails.
func TestAFailedUnitTestEndsTheBuilds(t *testing.T) {
	rules := filepath.Join(t.TempDir(), "rules.mk")
	text := "include Makefile\nunit:\n\t@false\nparts:\n\tsleep 600\n"
	if err := os.WriteFile(rules, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--directory=../..", "--file=" + rules, "MAKE=make --file=" + rules}
	for _, before := range []string{"test-deps", "test-kernel", "lint", "tools", "images"} {
		args = append(args, "--old-file="+before)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "make", append(args, "test")...)
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Errorf("make test: %v, %v\n%s", err, ctx.Err(), out)
	}
}
