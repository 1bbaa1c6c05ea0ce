// Command notices prints the licences and notices of everything that Go programs are
// built from, as they lie in the module cache: which modules those are, the programs
// themselves say.
//
//	go run ./packaging/notices PROGRAM...
package main

import (
	"debug/buildinfo"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// own is this repository's module.
const own = "github.com/deckhand-node/deckhand"

// legal are the names of files that have to go along with a module.
var legal = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|patents|copyright)([-._][-.\w]*)?$`)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, programs []string) error {
	modules, err := modulesOf(programs)
	if err != nil {
		return err
	}
	owners := map[string][]string{} // of each text
	for _, m := range modules {
		texts, err := m.legal()
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if len(texts) == 0 {
			return fmt.Errorf("%s: no licence in %s", m.name, m.dir)
		}
		for _, path := range slices.Sorted(maps.Keys(texts)) {
			owners[texts[path]] = append(owners[texts[path]], m.name+", "+path)
		}
	}
	return write(out, owners)
}

// module is what a program is built from.
type module struct {
	name, dir string
	// shallow says that only what is in the directory itself counts.
	shallow bool
}

// modulesOf returns the modules that the programs are built from, by name.
func modulesOf(programs []string) ([]module, error) {
	env, err := exec.Command("go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	goroot, cache, _ := strings.Cut(strings.TrimSpace(string(env)), "\n")
	dirs := map[string]string{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return nil, err
		}
		for _, m := range append(info.Deps, &info.Main) {
			if m.Replace != nil {
				m = m.Replace
			}
			if m.Path == own {
				continue
			}
			dirs[m.Path+" "+m.Version] = filepath.Join(cache, escape(m.Path)+"@"+escape(m.Version))
		}
	}
	// The tree of Go has programs beside the library, and their licences.
	modules := []module{{name: "Go's runtime and standard library", dir: goroot, shallow: true}}
	for _, name := range slices.Sorted(maps.Keys(dirs)) {
		modules = append(modules, module{name: name, dir: dirs[name]})
	}
	return modules, nil
}

// escape is how the module cache writes capitals (https://go.dev/ref/mod#module-cache).
func escape(path string) string {
	var b strings.Builder
	for _, r := range path {
		if unicode.IsUpper(r) {
			b.WriteByte('!')
			r = unicode.ToLower(r)
		}
		b.WriteRune(r)
	}
	return b.String()
}

// legal returns the texts of the module's licences and notices by their path in it:
// also of those for parts of it that were taken from elsewhere.
func (m module) legal() (map[string]string, error) {
	texts := map[string]string{}
	err := filepath.WalkDir(m.dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != m.dir && (m.shallow || d.Name() == "testdata"):
			return fs.SkipDir
		case !d.Type().IsRegular() || !legal.MatchString(d.Name()) || strings.HasSuffix(d.Name(), ".go"):
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(m.dir, path)
		texts[name] = strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n"))
		return err
	})
	return texts, err
}

// write prints each text once, below those whose it is.
func write(out io.Writer, owners map[string][]string) error {
	var sections []string
	for text, of := range owners {
		rule := strings.Repeat("-", 80)
		sections = append(sections, fmt.Sprintf("\n%s\n%s\n%s\n\n%s\n", rule, strings.Join(of, "\n"), rule, text))
	}
	slices.Sort(sections)
	_, err := io.WriteString(out, strings.Join(sections, ""))
	return err
}
