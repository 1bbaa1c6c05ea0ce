package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/deckhand-node/deckhand/internal/host/room"
)

// tools are packages that write files for their callers: the callers are the writers.
var tools = []string{"internal/kit/atomicfile", "internal/kit/safeopen", "internal/kit/socket", "internal/host/checkpoint"}

// writing lists the calls that write or make a file.
var writing = []string{"atomicfile.Write", "atomicfile.WriteVolatile", "atomicfile.Create", "checkpoint.WriteFile", "checkpoint.NewLog", "os.Create",
	"os.CreateTemp", "os.WriteFile", "socket.Listen"}

// writers finds the functions that write or make files, as "package.function" or "package.type.method", without "internal/".
func writers(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") || forTests(dir) || slices.Contains(tools, dir) ||
			!strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir, "cmd/") {
			return
		}
		for _, decl := range f.Decls {
			ast.Inspect(decl, func(n ast.Node) bool {
				var writes bool
				switch n := n.(type) {
				case *ast.CallExpr:
					called := spelled(n.Fun)
					// The third is a pod's record of package checkpoint, which its writers call by an interface.
					record := strings.HasSuffix(called, "Records.Save") || strings.HasSuffix(called, "Store.Save")
					writes = slices.Contains(writing, called) || record && len(n.Args) == 4
				case *ast.SelectorExpr:
					writes = n.Sel.Name == "O_CREATE" || n.Sel.Name == "O_CREAT"
				}
				if writes {
					found[strings.TrimPrefix(dir, "internal/")+"."+functionName(decl)] = fset.Position(n.Pos()).String()
				}
				return true
			})
		}
	})
	return found
}

// functionName is the name of a function, with its receiver's type.
func functionName(decl ast.Decl) string {
	f, ok := decl.(*ast.FuncDecl)
	if !ok {
		return ""
	}
	if f.Recv == nil {
		return f.Name.Name
	}
	of := f.Recv.List[0].Type
	if star, ok := of.(*ast.StarExpr); ok {
		of = star.X
	}
	return spelled(of) + "." + f.Name.Name
}

// noStateFile lists the functions that write something else than the agent's files, with the reason.
var noStateFile = map[string]string{
	"host/kernel.Sysctls.Set":                      "/proc",
	"host/process.SetOOMScoreAdj":                  "/proc",
	"runtime/embedded/cni.Network.enable":          "/proc",
	"runtime/embedded/cni.Network.makeBridge":      "/proc",
	"runtime/embedded/cni.Network.routeLoopback":   "/proc",
	"cmd/deckhand/command.writeWhole":              "the file that a command's user names",
	"cmd/deckhand/command/transfer.Unpacking.file": "the file that a command's user names",
}

// TestFilesHaveARow: each function that writes a file is in the table that says what follows if the file can't be written, and
// each row has such a function.
func TestFilesHaveARow(t *testing.T) {
	found := writers(t)
	listed := map[string]bool{}
	paths := map[string]bool{}
	for _, u := range room.Uses() {
		if paths[u.Path] || len(u.Writers) == 0 || u.Failure.GoesOn == "" || u.Failure.Waits == "" {
			t.Errorf("room.Uses: the row of %s is double, or lacks something", u.Path)
		}
		paths[u.Path] = true
		for _, w := range u.Writers {
			if listed[w] = true; found[w] == "" {
				t.Errorf("room.Uses: %s has %s, which doesn't write a file", u.Path, w)
			}
		}
	}
	for w, at := range found {
		switch _, none := noStateFile[w]; {
		case none && listed[w]:
			t.Errorf("%s has a row in room.Uses: remove it from noStateFile", w)
		case !none && !listed[w]:
			t.Errorf("%s: %s writes a file: add a row to room.Uses that says what follows if it can't", at, w)
		}
	}
	for w := range noStateFile {
		if found[w] == "" {
			t.Errorf("%s doesn't write a file: remove it from noStateFile", w)
		}
	}
}
