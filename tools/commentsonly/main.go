// Command commentsonly proves that a commit changes nothing but comments and line breaks: it compares the syntax trees
// of two revisions' Go files without comments and positions, and prints the files that differ in more than that.
//
//	go run ./tools/commentsonly main~1 main
//
// Comments that compilers and tests read (//go:, //lint:, //export, line directives, cgo's preamble, "Output:" of
// examples) count as code. A file that isn't Go, or that only one revision has, is printed whenever it differs. The
// exit code is 1 if a file was printed, 2 after an error. Files are read from Git's objects, not from the worktree.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: commentsonly REVISION REVISION")
		os.Exit(2)
	}
	result, err := compare(".", os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "commentsonly:", err)
		os.Exit(2)
	}
	for _, d := range result.different {
		fmt.Println(d)
	}
	fmt.Printf("%d Go files differ in comments and line breaks only, %d files in more\n", result.same, len(result.different))
	if len(result.different) > 0 {
		os.Exit(1)
	}
}

// comparison is what two revisions have in common.
type comparison struct {
	same      int      // changed Go files with equal syntax trees
	different []string // the other changed files, each with what differs
}

// compare compares the files of two revisions of the repository that dir is in.
func compare(dir, before, after string) (comparison, error) {
	var result comparison
	list, err := git(dir, "diff-tree", "-r", "-z", "--no-renames", "--name-status", before+"^{tree}", after+"^{tree}")
	if err != nil {
		return result, err
	}
	fields := strings.Split(strings.TrimSuffix(string(list), "\x00"), "\x00")
	for i := 0; i+1 < len(fields); i += 2 {
		status, path := fields[i], fields[i+1]
		reason := ""
		switch {
		case status == "A":
			reason = "added"
		case status == "D":
			reason = "removed"
		case status != "M":
			reason = "another kind of file"
		case !strings.HasSuffix(path, ".go"):
			reason = "not Go"
		default:
			old, err := git(dir, "cat-file", "blob", before+":"+path)
			if err != nil {
				return result, err
			}
			new, err := git(dir, "cat-file", "blob", after+":"+path)
			if err != nil {
				return result, err
			}
			reason = difference(path, old, new)
		}
		if reason == "" {
			result.same++
		} else {
			result.different = append(result.different, path+": "+reason)
		}
	}
	return result, nil
}

func git(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("git", append([]string{"-C", dir}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}

// difference says in which way two versions of a Go file differ other than in comments and line breaks; empty if they
// don't.
func difference(path string, old, new []byte) string {
	fset := token.NewFileSet()
	a, err := parser.ParseFile(fset, path, old, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return "before: " + err.Error()
	}
	b, err := parser.ParseFile(fset, path, new, parser.SkipObjectResolution|parser.ParseComments)
	if err != nil {
		return "after: " + err.Error()
	}
	if !slices.Equal(directives(a), directives(b)) {
		return "directives differ"
	}
	if at := equal(reflect.ValueOf(a), reflect.ValueOf(b), token.NoPos); at != same {
		return fmt.Sprintf("code differs at line %d", fset.Position(at).Line)
	}
	return ""
}

// directive matches comments that programs read.
var directive = regexp.MustCompile(`^(//go:|//line |/\*line |//export |//extern |//lint:|//nolint|// \+build )`)

// output matches the comment that holds what an example prints.
var output = regexp.MustCompile(`(?i)^\s*(unordered )?output:`)

// directives returns the comments of a file that programs read, each with the number of declarations before it.
func directives(f *ast.File) []string {
	var list []string
	for _, group := range f.Comments {
		before := 0
		preamble := false
		for _, d := range f.Decls {
			if d.Pos() < group.Pos() {
				before++
			}
			if g, ok := d.(*ast.GenDecl); ok && (g.Doc == group || imports(g, group, "C")) {
				preamble = imports(g, nil, "C")
			}
		}
		if preamble || output.MatchString(group.Text()) {
			list = append(list, fmt.Sprint(before, group.Text()))
		}
		for _, c := range group.List {
			if directive.MatchString(c.Text) {
				list = append(list, fmt.Sprint(before, c.Text))
			}
		}
	}
	return list
}

// imports reports whether a declaration imports a package; with doc, whether that import has this comment.
func imports(d *ast.GenDecl, doc *ast.CommentGroup, path string) bool {
	return slices.ContainsFunc(d.Specs, func(s ast.Spec) bool {
		i, ok := s.(*ast.ImportSpec)
		return ok && i.Path.Value == `"`+path+`"` && (doc == nil || i.Doc == doc)
	})
}

// same is the position that equal returns for equal trees.
const same = token.Pos(-1)

var (
	commentGroup = reflect.TypeFor[*ast.CommentGroup]()
	comments     = reflect.TypeFor[[]*ast.CommentGroup]()
	position     = reflect.TypeFor[token.Pos]()
)

// equal compares two parts of syntax trees. It returns same, or the position in a of the innermost node that differs;
// near is that of the node around it. Of positions only whether they are set counts: by that the tree tells
// "type A = B" from "type A B", and "f(x...)" from "f(x)".
func equal(a, b reflect.Value, near token.Pos) token.Pos {
	if a.IsValid() != b.IsValid() || a.IsValid() && a.Type() != b.Type() {
		return near
	}
	if !a.IsValid() {
		return same
	}
	switch a.Type() {
	case commentGroup, comments:
		return same
	case position:
		if (a.Int() == 0) != (b.Int() == 0) {
			return near
		}
		return same
	}
	switch a.Kind() {
	case reflect.Interface:
		return equal(a.Elem(), b.Elem(), near)
	case reflect.Pointer:
		if a.IsNil() || b.IsNil() {
			if a.IsNil() != b.IsNil() {
				return near
			}
			return same
		}
		if n, ok := a.Interface().(ast.Node); ok {
			near = n.Pos()
		}
		return equal(a.Elem(), b.Elem(), near)
	case reflect.Slice:
		if a.Len() != b.Len() {
			return near
		}
		for i := range a.Len() {
			if at := equal(a.Index(i), b.Index(i), near); at != same {
				return at
			}
		}
		return same
	case reflect.Struct:
		for i := range a.NumField() {
			if at := equal(a.Field(i), b.Field(i), near); at != same {
				return at
			}
		}
		return same
	}
	if !a.Equal(b) {
		return near
	}
	return same
}
