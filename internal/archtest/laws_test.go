package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/deckhand-node/deckhand/"

// wing is a directory of internal: the packages that know one thing, floor by floor. A
// package may import packages of wings that are listed before its own, and packages on
// lower floors of its own wing.
type wing struct {
	name string
	// why says what the wing knows, and so why it stands where it stands.
	why string
	// floors name packages by their path below the wing ("." is the wing's own package, which may be
	// its doc.go alone), from the ground up. Packages of one floor don't know each other.
	floors []string
}

// wings are the house from the ground up: data flows one way, and a circle of knowledge
// can't come about.
var wings = []wing{
	{"kit", "knows no pods, nodes or API objects; everybody may use it", []string{
		". buildinfo errtext gate modules safeopen socket suggest terminal wake",
		"atomicfile filewatch logging mounts subprocess yaml", // read texts of errors, are debounced by wake, open with safeopen, show text with terminal, suggest names
	}},
	{"pod", "the nouns and the data rules of pods: values in, values out", []string{
		".",
		"allocated explain object spec/validation",
		"manifest spec",
	}},
	{"host", "this machine: what it has, and what the agent keeps on it", []string{
		". alarm capacity checkpoint clock kernel lockfile pluginwatch process room",
		"rootdir topology", // the runtime's part is locked while it is claimed; huge pages are capacity's
	}},
	{"config", "one validated configuration; everything above is built from it", []string{
		"flags gates paths validation",
		"document fields",
		".",
	}},
	{"lifecycle", "decides, and is pure: it knows what a pod is, and nobody who does something", []string{
		"admission container plan transcript/words",
		"apistatus resizing restart termination",
		".",
		"transcript",
	}},
	{"report", "what is told; it is handed facts and asks nobody", []string{
		". events metrics podstatus tracing",
	}},
	{"cluster", "what this node is to others: the facts about it, and its side of an API server", []string{
		". apiclient lastknown nodefacts",
		"certificates clusterobjects csinode eventsink mirror nodeobject podobject", // they go by the facts, and nodeobject writes some
	}},
	{"runtime", "the container runtime, and what it has", []string{
		". cri dns embedded/archives embedded/child embedded/cni embedded/orphans logs/layout memcri/node translate/env userns",
		"embedded logs/rotate memcri translate",
		"containergc engine health logs observed",
	}},
	{"volume", "what pods mount; it finds images' mounts in the runtime", []string{
		". filetree operations subpath teardown",
		"atomicwriter binder manager/volumestate usage",
		"csi objectfiles plugins",
		"manager",
	}},
	{"image", "images: present, allowed, collected", []string{
		"credentials gc",
		"access credentials/provider/execplugin pull",
		". credentials/provider",
	}},
	{"desired", "what should run, whatever the source", []string{
		".",
		"reader",
		"manifeststore runsource",
		"apisource file httpsource",
	}},
	{"resources", "what pods may use, of CPU to disk; it measures what pods that should run have mounted", []string{
		". allocation assign/align assign/state cgroup/counters devices storagelimits",
		"assign/cpu assign/memory cgroup/tree", // give hints to align; tree reads the counters of the groups that it finds
		"assign cgroup stats",                  // stats measures layers as storagelimits does
		"pressure",
	}},
	{"worker", "one goroutine per pod: reads, decides, has done what was decided", []string{
		". handler journal",
		"executor probe",
	}},
	{"server", "answers requests, over HTTP and the commands' socket: it may know all that it shows", []string{
		". local",
		"local/view podresources secure",
		"nodeapi", // fills the table of secure
	}},
	{"agent", "the composition root: the list of modules", []string{
		"cluster preflight reset runonce",
		".",
	}},
}

// TestWings: a package knows only what lies below it. Packages for tests are free: they
// put together what they test.
func TestWings(t *testing.T) {
	found := map[string]bool{}
	eachFile(t, func(dir, name string, f *ast.File, _ *token.FileSet) {
		if !strings.HasPrefix(dir, "internal/") || dir == "internal/archtest" || isTestPackage(dir) || strings.HasSuffix(name, "_test.go") {
			return // a test may look at the real thing above it
		}
		from, ok := placeOf(dir)
		if !ok {
			t.Errorf("%s has no place in the list of wings: give it one", dir)
			return
		}
		found[dir] = true
		for _, path := range imports(f) {
			to, ok := strings.CutPrefix(path, module)
			if !ok || to == dir {
				continue
			}
			if to, ok := placeOf(to); !ok || to.wing > from.wing || to.wing == from.wing && to.floor >= from.floor {
				t.Errorf("%s/%s imports %s, which isn't below it", dir, name, path)
			}
		}
	})
	for _, w := range wings {
		for _, floor := range w.floors {
			for p := range strings.FieldsSeq(floor) {
				if dir := path.Join("internal", w.name, p); !found[dir] {
					t.Errorf("the list of wings names %s, which doesn't exist", dir)
				}
			}
		}
	}
}

// place is a package's wing and its floor there, counted from the ground.
type place struct{ wing, floor int }

func placeOf(dir string) (place, bool) {
	for i, w := range wings {
		for j, floor := range w.floors {
			for p := range strings.FieldsSeq(floor) {
				if dir == path.Join("internal", w.name, p) {
					return place{i, j}, true
				}
			}
		}
	}
	return place{}, false
}

// TestCoreIsPure: the core decides from what it is given. If it could read a
// clock, a file or a client, decisions could be neither replayed nor explained.
func TestCoreIsPure(t *testing.T) {
	allowed := []string{"fmt", "maps", "slices", "sort", "strings", "strconv", "time", "errors", "cmp",
		"iter", "math", "math/bits", "encoding/json", "k8s.io/api/core/v1", "k8s.io/apimachinery/pkg/apis/meta/v1", "k8s.io/apimachinery/pkg/types", "k8s.io/apimachinery/pkg/api/resource",
		"k8s.io/component-helpers/resource", // computes with a pod's resources, and is as pure
		// What a pod asks of a node, and whether the node has it: they compute as well.
		"k8s.io/component-helpers/scheduling/corev1", "k8s.io/component-helpers/scheduling/corev1/nodeaffinity", "k8s.io/component-helpers/node/util/sysctl", "k8s.io/component-helpers/nodedeclaredfeatures",
		"k8s.io/apimachinery/pkg/util/version", "github.com/go-logr/logr", // for logr.Discard, see below
		"k8s.io/kubelet/config/v1beta1", // the types of settings
		module + "internal/pod", module + "internal/pod/allocated"}
	pure := []string{"internal/pod", "internal/pod/allocated", "internal/lifecycle"}
	clock := []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		if !slices.ContainsFunc(pure, func(p string) bool {
			return dir == p || p == "internal/lifecycle" && strings.HasPrefix(dir, p+"/") && !strings.HasPrefix(dir, p+"/transcript")
		}) || strings.HasSuffix(name, "_test.go") {
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
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "logr" && n.Sel.Name != "Discard" {
					t.Errorf("%s: libraries are given no logger, and the core has none: logr.%s", fset.Position(n.Pos()), n.Sel.Name)
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

// TestNodeFactsAreNotPolled: a change of a fact wakes whom it concerns.
func TestNodeFactsAreNotPolled(t *testing.T) {
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		if dir == "internal/cluster/nodefacts" && slices.Contains(imports(f), "time") {
			t.Errorf("%s/%s imports time: the board has no clock", dir, name)
		}
	})
}

// TestCoreKnowsNoSource: what differs from source to source is a fact of the pod, by which the core decides.
func TestCoreKnowsNoSource(t *testing.T) {
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		if dir != "internal/lifecycle" && !strings.HasPrefix(dir, "internal/lifecycle/") || strings.HasSuffix(name, "_test.go") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && spelled(s.X) == "pod" && (strings.HasPrefix(s.Sel.Name, "Source") || s.Sel.Name == "Desired" || s.Sel.Name == "AnnotationConfigSource") {
				t.Errorf("%s: %s says where a pod comes from", fset.Position(n.Pos()), spelled(s))
			}
			return true
		})
	})
}

// TestOneWayToObjects: who acts for a pod is handed its view. Only the executor chooses one, and by what the source says of
// the pod: a part that had a finder of its own could take an object of one realm for a pod of the other. Others make it.
func TestOneWayToObjects(t *testing.T) {
	may := map[string][]string{"Finder": {"internal/worker/executor", "internal/cluster/clusterobjects", "internal/agent", "internal/agent/cluster"}, "NewLocal": {"internal/agent"}, "Local": nil}
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		if !strings.HasPrefix(dir, "internal/") || strings.HasSuffix(name, "_test.go") || dir == "internal/pod/object/objecttest" {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && spelled(s.X) == "object" {
				if where, ok := may[s.Sel.Name]; ok && !slices.Contains(where, dir) {
					t.Errorf("%s: object.%s: take an object.View, or as much of it as is needed", fset.Position(n.Pos()), s.Sel.Name)
				}
			}
			return true
		})
	})
}

// TestNothingIsRenewedByATicker: who has something that ends knows when, and so does who follows what fills up.
func TestNothingIsRenewedByATicker(t *testing.T) {
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		timed := []string{"internal/volume", "internal/pod", "internal/resources", "internal/host"}
		if !slices.ContainsFunc(timed, func(wing string) bool { return strings.HasPrefix(dir, wing) }) || strings.HasSuffix(name, "_test.go") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok && (spelled(s) == "time.NewTicker" || spelled(s) == "time.Tick") {
				t.Errorf("%s: %s: set a timer for when there is something to do", fset.Position(n.Pos()), spelled(s))
			}
			return true
		})
	})
}

// TestSecondsSaturate: the API's seconds are int64s, whose product with time.Second overflows and becomes no wait at all.
func TestSecondsSaturate(t *testing.T) {
	converts := func(e ast.Expr) bool {
		call, ok := ast.Unparen(e).(*ast.CallExpr)
		if !ok || len(call.Args) != 1 {
			return false
		}
		fn, ok := call.Fun.(*ast.SelectorExpr)
		_, literal := call.Args[0].(*ast.BasicLit)
		return ok && spelled(fn) == "time.Duration" && !literal
	}
	unit := func(e ast.Expr) bool {
		s, ok := ast.Unparen(e).(*ast.SelectorExpr)
		return ok && slices.Contains([]string{"time.Hour", "time.Minute", "time.Second", "time.Millisecond"}, spelled(s))
	}
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		if !strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir, "cmd/") || strings.HasSuffix(name, "_test.go") || dir == "internal/pod" && name == "seconds.go" {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if b, ok := n.(*ast.BinaryExpr); ok && b.Op == token.MUL && (converts(b.X) && unit(b.Y) || unit(b.X) && converts(b.Y)) {
				t.Errorf("%s: a product that may overflow: make a duration of seconds with pod.Seconds", fset.Position(n.Pos()))
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
				if fn.Name == "panic" && !aborts(call) {
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

// TestNoForbiddenImports: nothing of k8s.io/kubernetes or of the scheduler is imported (they are
// programs, not libraries, and deckhand is written from scratch); what is only
// for tests stays out of the binary.
func TestNoForbiddenImports(t *testing.T) {
	eachFile(t, func(dir, name string, f *ast.File, _ *token.FileSet) {
		for _, path := range imports(f) {
			if strings.HasPrefix(path, "k8s.io/kubernetes") || strings.HasPrefix(path, "k8s.io/kube-scheduler") {
				t.Errorf("%s/%s imports %s", dir, name, path)
			}
			if forTests(path) && !forTests(dir) && !strings.HasSuffix(name, "_test.go") {
				t.Errorf("%s/%s imports %s outside a test package", dir, name, path)
			}
		}
	})
}

// TestClientOfTheAPIServer: client-go is imported by who talks to the API server, and its generated clients, which would
// double what it costs in memory, by nobody.
func TestClientOfTheAPIServer(t *testing.T) {
	may := []string{"internal/cluster/apiclient"}
	found := false
	eachFile(t, func(dir, name string, f *ast.File, _ *token.FileSet) {
		for _, path := range imports(f) {
			if path == "k8s.io/client-go/kubernetes" || strings.HasPrefix(path, "k8s.io/client-go/kubernetes/") || strings.HasPrefix(path, "k8s.io/client-go/informers") {
				t.Errorf("%s/%s imports %s: use internal/cluster/apiclient", dir, name, path)
			}
			if !strings.HasPrefix(path, "k8s.io/client-go/") || path == "k8s.io/client-go/util/jsonpath" || // which is no client
				strings.HasSuffix(name, "_test.go") || !strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir, "cmd/") {
				continue
			}
			if found = true; !slices.Contains(may, dir) {
				t.Errorf("%s/%s imports %s: only %s may", dir, name, path, strings.Join(may, ", "))
			}
		}
	})
	if !found {
		t.Error("nobody imports client-go")
	}
}

// TestStreamsAreTheLibraries: what is spoken on streams is left to Kubernetes' own libraries.
func TestStreamsAreTheLibraries(t *testing.T) {
	by := map[string][]string{
		"internal/server/nodeapi": {"k8s.io/apimachinery/pkg/util/proxy", "k8s.io/streaming/pkg/httpstream/spdy"},
		"internal/server/local":   {"k8s.io/streaming/pkg/httpstream/spdy"},
	}
	eachFile(t, func(dir, name string, f *ast.File, _ *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") {
			return
		}
		by[dir] = slices.DeleteFunc(by[dir], func(path string) bool { return slices.Contains(imports(f), path) })
		if slices.Contains(imports(f), "github.com/moby/spdystream") {
			t.Errorf("%s/%s imports spdystream: use k8s.io/streaming", dir, name)
		}
	})
	for dir, missing := range by {
		if len(missing) > 0 {
			t.Errorf("%s doesn't import %q: what speaks SPDY there?", dir, missing)
		}
	}
}

// forTests tells the packages that only tests and benchmarks may use: by their
// name, by lying under test or bench, or as the stand-in of a real part.
func forTests(path string) bool {
	path = strings.TrimPrefix(path, module)
	return path == "testing" || isTestPackage(path) || strings.HasPrefix(path, "test/") || strings.HasPrefix(path, "bench/") ||
		strings.HasPrefix(path, "internal/runtime/memcri")
}

// isTestPackage tells packages of test parts by their name.
func isTestPackage(dir string) bool {
	return strings.HasPrefix(dir, "internal/") && strings.HasSuffix(dir, "test")
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
		f, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution|parser.ParseComments)
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

// aborts reports whether a panic is net/http's way to cut a connection (http.ErrAbortHandler); there is no other one that HTTP/2 has, too.
func aborts(call *ast.CallExpr) bool {
	x, ok := call.Args[0].(*ast.SelectorExpr)
	return ok && x.Sel.Name == "ErrAbortHandler"
}
