package archtest

import (
	"go/ast"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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

// limits are how many bad habits (see habits and badName) the code of each wing may have, the commands, and the documents
// with the Makefile. A wing that isn't named has none. The numbers may only fall: after an edit that mends some, lower the number.
var limits = map[string]int{
	"kit": 1, "pod": 2, "host": 3, "lifecycle": 11, "report": 1, "runtime": 1, "volume": 2, "image": 1, "desired": 7,
	"server": 1, "agent": 10, "cmd": 1, "documents": 30,
}

// habits find sentences that a stranger has to read twice. Each returns how many are in a text.
var habits = map[string]func(text string) int{
	`a causative: "has X done"`: func(text string) int {
		n := 0
		if !strings.Contains(text, "ha") { // most texts: the expression is the slowest of all
			return 0
		}
		for _, m := range causative.FindAllStringSubmatch(text, -1) {
			if !slices.ContainsFunc(strings.Fields(m[1]), func(w string) bool { return slices.Contains(clauseWords, w) }) {
				n++
			}
		}
		return n
	},
	`a relative without a noun: "what", "who", "whoever"`: func(text string) int {
		n := 0
		for _, m := range nounless.FindAllStringIndex(text, -1) {
			if !question.MatchString(text[m[1]:]) {
				n++
			}
		}
		return n
	},
	`"told", "said", "known", "looked at", "taken in"`: func(text string) int { return len(vague.FindAllString(text, -1)) },
}

var (
	causative = regexp.MustCompile(`\b(?:has|have|having)\s+((?:[\w'/.-]+\s+){1,4}?)(?:[a-z]{3,}ed|made|done|written|read|run|begun|told|taken|sent|kept|shown|given|built|brought|found|seen|cut|shut)\b`)
	// clauseWords between the verb and the participle make it no causative: "has been read", "has a file that was read".
	clauseWords = strings.Fields("been to not just also already never no that which who and or is are was were isn't aren't be has have for if when as by what but in with since of at on from than so more most nothing")
	nounless    = regexp.MustCompile(`(?i)\b(?:whoever|whomever|whom)\b|\bwhatever (?:is|was|are|comes|goes|has|it|they|else)\b|` +
		`(?:^|[.:;,(]\s+|\b(?:of|for|from|by|to|with|in|at|on|than|as|like|without|and|or|but|all|only|is|are|not|that|about|below|beside|after|before|between|has|have|had|` +
		`holds?|makes?|keeps?|reads?|takes?|returns?|removes?|adds?|drops?|forgets?|ends?|stops?|lists?|counts?|replaces?)\s+)(?:who|whose|what)\b`)
	// question is the text after a "what" that begins a question: "what to do", "and what?".
	question = regexp.MustCompile(`^(?:\s+(?:to|if)\b|\?)`)
	vague    = regexp.MustCompile(`(?i)\b(?:told|said|let(?:s|ting)? in|heard of|look(?:s|ed|ing)? at|tak(?:e|es|en|ing) in|took in|` +
		`(?:is|are|was|were|be|been|isn't|aren't|wasn't|becomes?|yet|not|nothing|already|as) known|known (?:of|to|about|for))\b`)
	badWord = regexp.MustCompile(`(?:^(?:told|tells?|said|heard|news|kept|lent|lends|whose|whom|who|whoever)|` +
		`(?:^|[a-z0-9])(?:Told|Tells?|Said|Heard|News|Kept|Lent|Lends|Whose|Whom|Who|Whoever))(?:$|[A-Z0-9])`)
)

// badName reports whether an identifier is made of a verb's past or a pronoun, or is a function's name that says nothing.
func badName(name string, function bool) bool {
	return badWord.MatchString(name) || function && slices.Contains([]string{"take", "look", "begin", "hold"}, strings.ToLower(name))
}

// declared yields the names that a node declares.
func declared(n ast.Node) (names []*ast.Ident, function bool) {
	switch n := n.(type) {
	case *ast.FuncDecl:
		return []*ast.Ident{n.Name}, true
	case *ast.TypeSpec:
		return []*ast.Ident{n.Name}, false
	case *ast.ValueSpec:
		return n.Names, false
	case *ast.Field:
		return n.Names, false
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			return nil, false
		}
		for _, e := range n.Lhs {
			if id, ok := e.(*ast.Ident); ok {
				names = append(names, id)
			}
		}
	}
	return names, false
}

// wingOf is the wing that a file's directory belongs to: a key of limits.
func wingOf(dir string) string {
	if wing, ok := strings.CutPrefix(dir, "internal/"); ok {
		wing, _, _ = strings.Cut(wing, "/")
		return wing
	}
	return "cmd"
}

// TestWords holds what people read to plain technical English and to the terms of Kubernetes: messages, help, logs and events,
// which are string literals, the documents, the Makefile, comments and names. Rules forbid words; habits are counted.
// With -v it prints where they are.
func TestWords(t *testing.T) {
	counts := map[string]int{}
	count := func(wing, where, text string) {
		text = strings.Join(strings.Fields(text), " ")
		for habit, find := range habits {
			if n := find(text); n > 0 {
				counts[wing] += n
				if testing.Verbose() {
					t.Logf("%s: %s: %s", where, habit, text)
				}
			}
		}
	}
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
			count(wingOf(dir), fset.Position(group.Pos()).String(), group.Text())
		}
		ast.Inspect(f, func(n ast.Node) bool {
			names, function := declared(n)
			for _, id := range names {
				if badName(id.Name, function) {
					counts[wingOf(dir)]++
					if testing.Verbose() {
						t.Logf("%s: a name: %s", fset.Position(id.Pos()), id.Name)
					}
				}
			}
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
					count(wingOf(dir), fset.Position(n.Pos()).String(), said)
				}
			}
			return true
		})
	})
	documents := 0
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/*/*.md", "../../packaging/*.md", "../../Makefile"} {
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
				count("documents", strings.TrimPrefix(file, "../../")+":"+strconv.Itoa(n), line)
			}
		}
	}
	if documents < 10 {
		t.Errorf("%d documents were looked at", documents)
	}
	for _, wing := range slices.Sorted(maps.Keys(counts)) {
		switch n, limit := counts[wing], limits[wing]; {
		case n > limit:
			t.Errorf("%s has %d bad habits of language, at most %d are allowed: write plain sentences; go test -v -run TestWords shows all", wing, n, limit)
		case n < limit:
			t.Logf("%s has %d bad habits of language: lower the limit of %d", wing, n, limit)
		}
	}
}

// TestHabits: the patterns find what they are for, and not its neighbours.
func TestHabits(t *testing.T) {
	for text, want := range map[string]int{
		"specChanged has volumes written again that show what changes of a pod":        1,
		"traced has the requests of a pattern be traced. Whoever asks has been let in": 2,
		"The newest of what is spoken over WebSocket, they don't":                      1,
		"can't be asked whose a token is":                                              0,
		"It has been read, and has files that were written.":                           0,
		"It says what happens, and what to do.":                                        0,
		"pods whose specs differ, and clients who ask":                                 0,
		"The key isn't known.":                                                         1,
		"well-known labels of unknown pods":                                            0,
	} {
		n := 0
		for _, find := range habits {
			n += find(text)
		}
		if n != want {
			t.Errorf("%q: %d, want %d", text, n, want)
		}
	}
	for name, want := range map[string]bool{"told": true, "lastTold": true, "whoseToken": true, "soldier": false, "silent": false, "Tolds": false, "known": false} {
		if badName(name, false) != want {
			t.Errorf("%s: %t", name, !want)
		}
	}
}
