package archtest

import (
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// maxAgentFields is how many fields the composition root may have.
const maxAgentFields = 4

// TestTheAgentIsAList: the composition root keeps its modules and nothing that they know, and
// nobody gets it but who runs it. A part that were handed the whole agent could reach every other
// part, and nobody could tell from where it is built what it needs.
func TestTheAgentIsAList(t *testing.T) {
	const root = "internal/agent"
	fields := 0
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") || dir == "cmd/deckhand/command" || dir == "cmd/deckhand" {
			return
		}
		isAgent := func(e ast.Expr) bool { return false }
		if dir == root {
			isAgent = func(e ast.Expr) bool { id, ok := e.(*ast.Ident); return ok && id.Name == "Agent" }
		} else if slices.Contains(imports(f), module+root) {
			isAgent = func(e ast.Expr) bool {
				s, ok := e.(*ast.SelectorExpr)
				return ok && s.Sel.Name == "Agent"
			}
		}
		holds := func(list *ast.FieldList, what string) {
			if list == nil {
				return
			}
			for _, field := range list.List {
				ast.Inspect(field.Type, func(n ast.Node) bool {
					if e, ok := n.(ast.Expr); ok && isAgent(e) {
						t.Errorf("%s: a %s of the type Agent: hand over the parts that are needed", fset.Position(field.Pos()), what)
					}
					return true
				})
			}
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if s, ok := n.Type.(*ast.StructType); ok && dir == root && n.Name.Name == "Agent" {
					fields = s.Fields.NumFields()
				}
			case *ast.StructType:
				holds(n.Fields, "field")
			case *ast.FuncType:
				holds(n.Params, "parameter")
			}
			return true
		})
	})
	if fields == 0 || fields > maxAgentFields {
		t.Errorf("agent.Agent has %d fields, and may have 1 to %d: a module of its own keeps what it knows", fields, maxAgentFields)
	}
}
