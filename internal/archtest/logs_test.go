package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// logKeys are the names of what log lines say beside their message: those that Kubernetes'
// components use, and the agent's own.
var logKeys = strings.Fields(`
	containerID containerName dnsPolicy duration err image imageID message method name node object path persistentVolume
	persistentVolumeClaim pid plugin pod podSandboxID podUID probeType reason resourceVersion secret serviceAccount
	resourceName signal size source startTime status timeout type url version volumeName

	action address addresses adopted advice bridge bytes cacheKeyType cgroup cgroupDriver changed consequence credentials deviceID devices endpoint
	embeddedRuntime event failures fields generation id images journal lastLogLine limit module names objects operation
	origin overLimit period pods predecessorUID processes ref rootDir runtime setting settings shims snapshotter
	standalone success used user volumes`)

// instead are keys that suggest themselves, and what the lines have in their place.
var instead = map[string]string{
	"container": "containerName", "uid": "podUID", "error": "err", "why": "reason or err", "file": "path", "dir": "path",
	"namespace": "pod, as klog.KObj", "sandbox": "podSandboxID", "volume": "volumeName", "problem": "message", "took": "duration",
}

// TestLogLines: a log line has a constant message, by which it is found and counted, and what differs from
// line to line under keys that are the same wherever the same is meant. A pod is klog.KObj (or KRef, or
// logging.Ref), so that it is namespace/name in text and an object in JSON, as in Kubernetes' logs.
func TestLogLines(t *testing.T) {
	found := 0
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") || isTestPackage(dir) || !strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir, "cmd/") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			at, ok := logCall(call)
			if !ok {
				return true
			}
			found++
			where := fset.Position(call.Pos())
			if at > 0 && !literal(call.Args[at-1]) {
				t.Errorf("%s: a message that isn't constant: put what differs under a key", where)
			}
			rest := call.Args[at:]
			if len(rest)%2 != 0 || call.Ellipsis.IsValid() {
				t.Errorf("%s: keys and values aren't in pairs", where)
				return true
			}
			for i := 0; i < len(rest); i += 2 {
				switch key := text(rest[i]); {
				case instead[key] != "":
					t.Errorf("%s: the key %q: write %s", where, key, instead[key])
				case !slices.Contains(logKeys, key):
					t.Errorf("%s: the key %q isn't known: use one of those in %s, or add it there", where, key, "internal/archtest/logs_test.go")
				case key == "pod" && !slices.Contains([]string{"klog.KObj()", "klog.KRef()", "logging.Ref()"}, spelled(rest[i+1])):
					t.Errorf("%s: a pod that isn't klog.KObj, klog.KRef or logging.Ref", where)
				}
			}
			return true
		})
	})
	if found < 100 {
		t.Errorf("only %d log lines were found", found)
	}
}

// logCall reports whether a call logs, or adds keys to a logger, and where its keys begin.
func logCall(call *ast.CallExpr) (keysAt int, ok bool) {
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return 0, false
	}
	at, ok := map[string]int{"WithValues": 0, "Info": 1, "Error": 2}[s.Sel.Name]
	return at, ok && len(call.Args) >= at && len(call.Args) > 0 && isLogger(s.X)
}

// isLogger reports whether an expression is a logger by its name: log, cfg.Log, log.V(2).
func isLogger(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.Ident:
		return strings.HasSuffix(strings.ToLower(e.Name), "log") || strings.HasSuffix(strings.ToLower(e.Name), "logger")
	case *ast.SelectorExpr:
		return isLogger(e.Sel)
	case *ast.CallExpr:
		s, ok := e.Fun.(*ast.SelectorExpr)
		return ok && slices.Contains([]string{"V", "WithValues", "WithName"}, s.Sel.Name) && isLogger(s.X)
	}
	return false
}

// literal reports whether a string is written out, possibly in parts.
func literal(e ast.Expr) bool {
	if sum, ok := e.(*ast.BinaryExpr); ok {
		return literal(sum.X) && literal(sum.Y)
	}
	lit, ok := e.(*ast.BasicLit)
	return ok && lit.Kind == token.STRING
}
