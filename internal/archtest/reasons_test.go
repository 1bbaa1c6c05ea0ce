package archtest

import (
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestReasonsAreConstants: what the API calls a thing is written once, in package pod. Who
// writes it as text misspells it, and nobody finds who gives it and who goes by it.
func TestReasonsAreConstants(t *testing.T) {
	known := map[string]string{}
	eachFile(t, func(dir, name string, f *ast.File, _ *token.FileSet) {
		if dir != "internal/pod" || !strings.HasPrefix(name, "reasons") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if ok && len(spec.Values) == 1 {
				known[text(spec.Values[0])] = spec.Names[0].Name
			}
			return true
		})
	})
	if len(known) < 50 {
		t.Fatalf("package pod has %d reasons only: this test reads them wrongly", len(known))
	}
	used := map[string]bool{}
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") || forTests(dir) {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				used[n.Sel.Name] = true
			case *ast.BasicLit:
				if constant := known[text(n)]; constant != "" && dir != "internal/pod" && !(dir == "internal/desired/reader" && name == "uid.go") { // that has names of fields
					t.Errorf("%s: %s is pod.%s", fset.Position(n.Pos()), n.Value, constant)
				}
			}
			return true
		})
	})
	for reason, constant := range known {
		if !used[constant] {
			t.Errorf("pod.%s (%s) is used by nobody: remove it", constant, reason)
		}
	}
}

// sentence matches the names of what people read.
var sentence = regexp.MustCompile(`(?i)(^|\.)(\w*message|\w*reason|why|advice|detail|error\(\))$|\.text$`)

// comparedSentences lists where text is looked at all the same, by package, file and
// expression, with why that is right: it is others' and there is no code, or nothing follows from
// it but how something is shown.
var comparedSentences = map[string]string{
	"events/history.go: message":        "the recorder's own beginning of a combined event, which Kubernetes' clients know and an entry of an earlier agent has in its text only",
	"cri/errors.go: err.Error()":        "containerd has no code for a server that isn't initialized yet",
	"cri/exec.go: err.Error()":          "gRPC has no code for a message that is too large",
	"room/full.go: err.Error()":         "an error of the agent is a text to a command: what it explains isn't explained again",
	"yaml/explain.go: e.Message":        "the YAML decoder's errors, for which others' words are found",
	"executor/failure.go: f.Message":    "joined errors become one line",
	"pull/failure.go: message":          "the CRI has runtimes begin messages with these reasons (k8s.io/cri-api/pkg/errors)",
	"manifeststore/accept.go: message":  "what a message names isn't put before it again",
	"plan/events.go: f.Message":         "what a message begins with isn't put before it again",
	"why/print.go: message":             "what was printed isn't printed again",
	"embedded/tasks.go: err.Error()":    "containerd has no code for a task that runs still",
	"cni/netfilter.go: err.Error()":     "nft has no code for a table that isn't there",
	"transcript/decision.go: e.Message": "what a message names isn't told again in brackets",
}

// TestNobodyComparesSentences: what something means is a code. A sentence that is compared
// can't be corrected, and who corrects it changes what the agent does.
func TestNobodyComparesSentences(t *testing.T) {
	found := map[string]bool{}
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") || forTests(dir) {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			var what ast.Expr
			switch n := n.(type) {
			case *ast.BinaryExpr:
				if n.Op != token.EQL && n.Op != token.NEQ {
					return true
				}
				switch {
				case text(n.Y) != "":
					what = n.X
				case text(n.X) != "":
					what = n.Y
				}
			case *ast.SwitchStmt:
				for _, c := range n.Body.List {
					if n.Tag != nil && slices.ContainsFunc(c.(*ast.CaseClause).List, func(e ast.Expr) bool { return text(e) != "" }) {
						what = n.Tag
					}
				}
			case *ast.CallExpr:
				fn, ok := n.Fun.(*ast.SelectorExpr)
				if ok && spelled(fn.X) == "strings" && slices.Contains([]string{"Contains", "HasPrefix", "HasSuffix", "CutPrefix", "CutSuffix", "EqualFold", "Index"}, fn.Sel.Name) {
					what = n.Args[0]
				}
			}
			if what == nil || !sentence.MatchString(spelled(what)) {
				return true
			}
			where := f.Name.Name + "/" + name + ": " + spelled(what)
			found[where] = true
			if comparedSentences[where] == "" {
				t.Errorf("%s: %s is compared with text: use a code, or add %q with a reason", fset.Position(n.Pos()), spelled(what), where)
			}
			return true
		})
	})
	for where := range comparedSentences {
		if !found[where] {
			t.Errorf("nothing is compared any more at %s: remove it from the list", where)
		}
	}
}

// spelled is a name as the source spells it, calls with ().
func spelled(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return spelled(e.X) + "." + e.Sel.Name
	case *ast.CallExpr:
		if len(e.Args) == 1 && spelled(e.Fun) == "string" { // a conversion
			return spelled(e.Args[0])
		}
		return spelled(e.Fun) + "()"
	case *ast.IndexExpr:
		return spelled(e.X)
	case *ast.StarExpr:
		return spelled(e.X)
	}
	return ""
}

// text is what a string literal says; empty for anything else.
func text(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return s
}
