package archtest

import (
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A rule keeps words out of what people read, and names what to write in their place.
type rule struct {
	name  string
	words *regexp.Regexp
	write string
}

func words(list string) *regexp.Regexp { return regexp.MustCompile(`(?i)\b(` + list + `)\b`) }

var rules = []rule{
	{"private", words(`doubt|storagelimit|inquiry|deadgc|podstate|doom(ed)?|pardon(ed)?|blunder|poked?|roomat|knobs?|handdown|nodeimages|volumeset|oncepod|pathelement|sparesothers|takedown|hostcheck|kernelflags|ownprocess|crew`), "the term of the glossary in ARCHITECTURE.md"},
	{"grant", words(`granted`), "allocated (KEP-1287), admitted or permitted"},
	{"anew", words(`anew`), "again, or what is done: restarted, recreated"},
	{"let go", words(`let(s|ting)? go`), "release"},
	{"words", words(`(last|its|their) words`), "the end of its log"},
	{"folder", words(`folders?`), "directory"},
	{"text", regexp.MustCompile(`\b(is|not|be|takes) a text($|[^ ]| \()|\blists? of texts`), "string"},
	{"whole number", words(`whole numbers?`), "integer"},
	{"order", words(`(is|are|was) not ready since|isn't ready since`), `"not ready for 12s"`},
	{"waits", words(`waits for( the| a)? (container )?runtime`), `"waiting for container runtime"`},
	{"missing", words(`wait for what is missing|wait for objects that are missing`), `"containers wait for missing objects"`},
	{"negation", words(`is no (directory|file|regular file|number|quantity|taint|integer|string|address|name|socket)`), "isn't a"},
	{"written down", words(`(write|writes|written|wrote) down`), "record, save or specify"},
	{"sign of life", words(`signs? of life`), "watchdog notification"},
	{"lack", words(`lacks?|lacking`), "is missing, has no"},
}

// readable is what a rule doesn't hold for: names that stay readable in files of earlier versions.
var readable = []struct{ in, rule string }{
	{"UPGRADING.md", "private"}, // lists the keys of older journals
}

// TestWords holds what people read to plain technical English and to the terms of Kubernetes:
// messages, help, logs and events, which are string literals, the documents, and comments.
func TestWords(t *testing.T) {
	check := func(where, text string) {
		for _, r := range rules {
			said := r.words.FindString(text)
			if said == "" {
				continue
			}
			excepted := false
			for _, e := range readable {
				excepted = excepted || e.rule == r.name && strings.HasPrefix(where, e.in+":")
			}
			if !excepted {
				t.Errorf("%s: %q: write %s", where, said, r.write)
			}
		}
	}
	eachFile(t, func(dir, name string, f *ast.File, fset *token.FileSet) {
		if strings.HasSuffix(name, "_test.go") || isTestPackage(dir) || !strings.HasPrefix(dir, "internal/") && !strings.HasPrefix(dir, "cmd/") {
			return
		}
		for _, group := range f.Comments {
			check(fset.Position(group.Pos()).String(), group.Text())
		}
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ImportSpec:
				return false
			case *ast.Field: // a tag is a name of the API
				if n.Tag != nil {
					n.Tag = nil
				}
			case *ast.BasicLit:
				if said := text(n); strings.Contains(said, " ") {
					check(fset.Position(n.Pos()).String(), said)
				}
			}
			return true
		})
	})
	documents := 0
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/*/*.md", "../../packaging/*.md"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			documents++
			n := 0
			for line := range strings.Lines(string(data)) {
				n++
				check(strings.TrimPrefix(file, "../../")+":"+strconv.Itoa(n), line)
			}
		}
	}
	if documents < 10 {
		t.Errorf("%d documents were looked at", documents)
	}
}
