// Package packaging tests what `make dist` builds as an administrator meets it: what is in
// the package, what dpkg does with it, and whether the installed program runs pods.
package packaging

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The versions of the packages that the tests build.
const (
	version      = "v1.2.3-rc.1+4.gabc1234"
	newerVersion = "v1.2.3"
)

// older and newer are directories with a distribution each; TestMain fills them before any test runs.
var older, newer string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "these tests install packages (into directories of their own) and run containers: they need root")
		return 1
	}
	dir, err := os.MkdirTemp("", "deckhand-packaging-")
	if err == nil {
		defer os.RemoveAll(dir)
		older, newer = filepath.Join(dir, "older"), filepath.Join(dir, "newer")
		err = build(older, "VERSION="+version)
	}
	if err == nil {
		err = build(newer, "VERSION="+newerVersion)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// checkout is the root of the repository.
func checkout(path string) string { return filepath.Join("..", "..", path) }

// build makes a distribution from the programs in bin/.
func build(out string, env ...string) error {
	cmd := exec.Command(checkout("packaging/build.sh"), checkout("bin"), out)
	cmd.Env = append(append(os.Environ(), "FAST=1"), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the package: %w (programs come from `make tools images`)\n%s", err, text)
	}
	return nil
}

// file is the one file of a distribution whose name ends so.
func file(t *testing.T, dir, suffix string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "deckhand_*"+suffix))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has %q, %v", dir, found, err)
	}
	return found[0]
}

// output runs a command that has to succeed, with nothing of this process's environment but
// PATH, and returns what it prints.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	text, err := try(name, args...)
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, text)
	}
	return text
}

func try(name string, args ...string) (string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH") + ":/usr/sbin:/sbin", "LC_ALL=C", "HOME=/nonexistent"}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
