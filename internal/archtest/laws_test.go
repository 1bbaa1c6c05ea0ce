package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/deckhand-node/deckhand/"

// floors lists the rooms from the ground up. A package may import packages of
// this module only from rooms on lower lines: data flows one way, and a cycle of
// knowledge can't come about. A room stands for the packages below it as well,
// unless they have a line of their own.
var floors = []string{
	"internal/pod internal/pathelement internal/beneath", // the nouns, what a name may be, how to open what pods can change: everybody may use them, they know nobody
	"internal/apparmor internal/buildinfo internal/atomicfile internal/cpuunits internal/dns internal/downward internal/envfile internal/events internal/gate internal/goldentest internal/grant internal/kernelflags internal/lockfile internal/logging internal/loglayout internal/memunits internal/metrics internal/nearest internal/objects internal/ownprocess internal/pace internal/plaintext internal/rootdir internal/sealed internal/systemd internal/yamltext",
	"internal/podspec internal/manifest internal/lifecycle internal/config internal/credentials internal/podstate internal/userns",
	"internal/imagegc internal/reload internal/objects/objectspec internal/podlogdirs internal/podlogs internal/runtime/cri internal/runtime/translate internal/resources internal/transcript internal/allocation",
	"internal/deadgc internal/logrotate internal/volume internal/image internal/termination internal/observed internal/desired internal/status internal/runtime/embedded internal/runtime/memcri internal/handler internal/probe internal/journal",
	"internal/runtime/critest",
	"internal/effects internal/storagelimit internal/takedown internal/hostcheck internal/server internal/local",
	"internal/runtime/embedded/embeddedtest", // takes down what a test made
	"internal/worker internal/nodeimages",
	"internal/cli",
	"internal/agent",
	"cmd",
	"test bench images", // look at the program from outside
}

// TestOneWayFlow: a room knows only rooms below it.
func TestOneWayFlow(t *testing.T) {
	eachFile(t, func(dir, name string, f *ast.File, _ *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") {
			return // a test may look at the real thing above it
		}
		from := floorOf(dir)
		if from < 0 {
			if strings.HasPrefix(dir, "internal/") && dir != "internal/archtest" {
				t.Errorf("%s has no line in the list of floors: give it one", dir)
			}
			return
		}
		for _, path := range imports(f) {
			to, ok := strings.CutPrefix(path, module)
			if !ok || room(to) == room(dir) {
				continue
			}
			if floorOf(to) >= from {
				t.Errorf("%s/%s imports %s, which isn't below it", dir, name, to)
			}
		}
	})
}

// TestCoreIsPure: the core decides from what it is given. If it could read a
// clock, a file or a client, decisions could be neither replayed nor explained.
func TestCoreIsPure(t *testing.T) {
	allowed := []string{"fmt", "maps", "slices", "sort", "strings", "strconv", "time", "errors", "cmp",
		"iter", "k8s.io/api/core/v1", "k8s.io/apimachinery/pkg/apis/meta/v1", "k8s.io/apimachinery/pkg/types", "k8s.io/apimachinery/pkg/api/resource",
		"k8s.io/component-helpers/resource", // computes with a pod's resources, and is as pure
		module + "internal/pod", module + "internal/grant"}
	pure := []string{"internal/pod", "internal/grant", "internal/lifecycle"}
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		if !slices.Contains(pure, room(dir)) || strings.HasSuffix(name, "_test.go") {
			return
		}
		for _, path := range imports(f) {
			if !slices.Contains(allowed, path) && !strings.HasPrefix(path, module+"internal/lifecycle/") {
				t.Errorf("%s/%s imports %s: the core has no I/O, clock, lock or client", dir, name, path)
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clock, n.Sel.Name) {
					t.Errorf("%s: the core is told the time, it doesn't read time.%s", fset.Position(n.Pos()), n.Sel.Name)
				}
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "metav1" && n.Sel.Name == "Now" {
					t.Errorf("%s: the core is told the time", fset.Position(n.Pos()))
				}
			case *ast.GoStmt:
				t.Errorf("%s: the core starts no goroutine", fset.Position(n.Pos()))
			}
			return true
		})
	})
}

// TestNoExitBelowMain: a library that exits takes orderly shutdown from everybody;
// init functions and panics act behind the composition root's back.
func TestNoExitBelowMain(t *testing.T) {
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		if !strings.HasPrefix(dir, "internal/") || strings.HasSuffix(name, "_test.go") {
			return
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s: no init functions: construct where it is needed", fset.Position(fn.Pos()))
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			switch fn := call.Fun.(type) {
			case *ast.Ident:
				if fn.Name == "panic" {
					t.Errorf("%s: return an error instead of a panic", fset.Position(n.Pos()))
				}
			case *ast.SelectorExpr:
				if x, ok := fn.X.(*ast.Ident); ok && (x.Name == "os" && fn.Sel.Name == "Exit" || x.Name == "log" && strings.HasPrefix(fn.Sel.Name, "Fatal")) {
					t.Errorf("%s: only main ends the process", fset.Position(n.Pos()))
				}
			}
			return true
		})
	})
}

// TestNoForbiddenImports: nothing of k8s.io/kubernetes is imported (it is a
// program, not a library, and deckhand is written from scratch); what is only
// for tests stays out of the binary.
func TestNoForbiddenImports(t *testing.T) {
	eachFile(t, func(dir, name string, f *ast.File, _ *token.FileSet) {
		for _, path := range imports(f) {
			if strings.HasPrefix(path, "k8s.io/kubernetes") {
				t.Errorf("%s/%s imports %s", dir, name, path)
			}
			if forTests(path) && !forTests(dir) && !strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s/%s imports %s outside a test package", dir, name, path)
			}
		}
	})
}

// forTests tells the packages that only tests and benchmarks may use: by their
// name, by lying under test or bench, or as the stand-in of a real part.
func forTests(path string) bool {
	path = strings.TrimPrefix(path, module)
	return path == "testing" || strings.HasSuffix(path, "test") && strings.HasPrefix(path, "internal/") ||
		strings.HasPrefix(path, "test/") || strings.HasPrefix(path, "bench/") || strings.HasPrefix(path, "internal/runtime/memcri")
}

// TestNoOddsAndEnds: a package is named for what it knows.
func TestNoOddsAndEnds(t *testing.T) {
	bad := []string{"util", "utils", "common", "helper", "helpers", "misc", "base", "shared", "lib"}
	eachFile(t, func(dir, name string, f *ast.File, _ *token.FileSet) {
		if slices.Contains(bad, f.Name.Name) || slices.Contains(bad, strings.TrimSuffix(name, ".go")) {
			t.Errorf("%s/%s: name it for what it knows", dir, name)
		}
	})
}

// room is the line entry that a package belongs to: the longest that is a prefix of its path.
func room(dir string) string {
	best := ""
	for _, line := range floors {
		for _, r := range strings.Fields(line) {
			if (dir == r || strings.HasPrefix(dir, r+"/")) && len(r) > len(best) {
				best = r
			}
		}
	}
	return best
}

func floorOf(dir string) int {
	r := room(dir)
	if r == "" {
		return -1
	}
	return slices.IndexFunc(floors, func(line string) bool { return slices.Contains(strings.Fields(line), r) })
}

func imports(f *ast.File) []string {
	var list []string
	for _, im := range f.Imports {
		if path, err := strconv.Unquote(im.Path.Value); err == nil {
			list = append(list, path)
		}
	}
	return list
}

// eachFile parses every Go file of the module.
func eachFile(t *testing.T, visit func(dir, name string, f *ast.File, fset *token.FileSet)) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if e.IsDir() {
			if path != root && (strings.HasPrefix(e.Name(), ".") || e.Name() == "testdata" || e.Name() == "bin" || hasModule(path)) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		n++
		visit(filepath.ToSlash(rel), e.Name(), f, fset)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		t.Fatal("no Go files were found")
	}
}

func hasModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}
