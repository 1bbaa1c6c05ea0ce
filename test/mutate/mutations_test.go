package main

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestMutationsApply: each mutation finds its place in the core as it is, and the core compiles with it.
func TestMutationsApply(t *testing.T) {
	root := filepath.Join("..", "..")
	files, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	exports := exportsOf(t, root)
	fset := token.NewFileSet()
	known := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	names := map[string]bool{}
	for i := range mutations {
		m := &mutations[i]
		if names[m.name] {
			t.Errorf("two mutations are called %q", m.name)
		}
		names[m.name] = true
		path, text, err := m.apply(files)
		if err != nil {
			t.Error(err)
			continue
		}
		var parsed []*ast.File
		for _, s := range files {
			if filepath.Dir(s.path) != filepath.Dir(path) {
				continue
			}
			if s.path == path {
				s.text = text
			}
			f, err := parser.ParseFile(fset, s.path, s.text, parser.SkipObjectResolution)
			if err != nil {
				t.Fatalf("mutation %q: %v", m.name, err)
			}
			parsed = append(parsed, f)
		}
		if _, err := (&types.Config{Importer: known}).Check(filepath.Dir(path), fset, parsed, nil); err != nil {
			t.Errorf("mutation %q doesn't compile: %v", m.name, err)
		}
	}
}

// exportsOf returns the files with what the packages that the core imports export, by import path.
func exportsOf(t *testing.T, root string) map[string]string {
	list := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", "./"+core+"/...")
	list.Dir = root
	list.Env = append(os.Environ(), "CGO_ENABLED=0") // as everything is compiled but for the race detector
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
	}
	return exports
}
