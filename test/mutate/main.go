// Command mutate puts faults into the core, one at a time, and demands that its laws find nine of ten.
// The tree isn't changed: each fault is laid over it for one build. Transcripts aren't asked: they would
// find them all, as they hold what the core does; the laws say what it has to do.
//
// The faults are a list and not made by a tool (gremlins, go-mutesting): those can't ask some tests
// alone, know no places that matter, and would take hours for hundreds of changes to words and events.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// core is the directory of the packages that are mutated, from the root of the repository; its laws are tests there.
const core = "internal/lifecycle"

// demanded is how many of a hundred mutations the laws have to find.
const demanded = 90

// mutation is one fault.
type mutation struct {
	// name says what is wrong then.
	name string
	// in names the function ("OnExit") or method ("Terminator.kill"), old a text that occurs once in it,
	// new what takes its place.
	in, old, new string
	// spared says why no law can find it; empty for one that they should.
	spared string
}

// source is one file of the core.
type source struct {
	path string // absolute
	text string
	file *ast.File
}

// load reads the core's files, but for tests.
func load(root string) (files []source, err error) {
	err = filepath.WalkDir(filepath.Join(root, core), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		files = append(files, source{path, string(text), f})
		return err
	})
	return files, err
}

// nameOf is a function's name, with that of its receiver's type before it.
func nameOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return f.Name.Name
	}
	t := f.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if id, ok := t.(*ast.Ident); ok {
		return id.Name + "." + f.Name.Name
	}
	return f.Name.Name
}

// apply finds the mutation's place and returns its file, and what that says with it.
func (m *mutation) apply(files []source) (path, text string, err error) {
	functions, places := 0, 0
	for i := range files {
		s := &files[i]
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || nameOf(f) != m.in {
				continue
			}
			functions++
			from, to := int(f.Pos())-int(s.file.FileStart), int(f.End())-int(s.file.FileStart)
			n := strings.Count(s.text[from:to], m.old)
			places += n
			if n > 0 {
				path, text = s.path, s.text[:from]+strings.Replace(s.text[from:to], m.old, m.new, 1)+s.text[to:]
			}
		}
	}
	switch {
	case functions == 0:
		return "", "", fmt.Errorf("mutation %q: no function %s below %s: give its new name in mutations.go", m.name, m.in, core)
	case places != 1:
		return "", "", fmt.Errorf("mutation %q: %d places in %s say %q, one is wanted: correct the place in mutations.go", m.name, places, m.in, m.old)
	}
	return path, text, nil
}

// outcome is what became of a mutation.
type outcome struct {
	caught bool
	how    string
	took   time.Duration
	err    error
}

// player plays mutations.
type player struct {
	root, dir string
	steps     int
	files     []source
}

// play builds the laws' test with the mutation laid over the tree (nil for none) and runs it.
func (p *player) play(ctx context.Context, n int, m *mutation) (o outcome) {
	began := time.Now()
	defer func() { o.took = time.Since(began) }()
	binary := filepath.Join(p.dir, fmt.Sprintf("%d.test", n))
	defer os.Remove(binary)
	args := []string{"test", "-c", "-o", binary}
	if m != nil {
		overlay, err := p.overlay(n, m)
		if err != nil {
			return outcome{err: err}
		}
		args = append(args, "-overlay", overlay)
	}
	build := exec.CommandContext(ctx, "go", append(args, "./"+core)...)
	build.Dir = p.root
	if out, err := build.CombinedOutput(); err != nil {
		return outcome{err: fmt.Errorf("%w: %s", err, out)}
	}
	run := exec.CommandContext(ctx, binary, "-test.run=^TestLawsManySteps$", "-test.timeout=10m", "-laws.from=1", "-laws.steps="+strconv.Itoa(p.steps))
	run.Dir = filepath.Join(p.root, core)
	out, err := run.CombinedOutput()
	if ctx.Err() != nil {
		return outcome{err: ctx.Err()}
	}
	return outcome{caught: err != nil, how: found(string(out))}
}

// overlay writes the file that lays the mutation over the tree (see `go help build`).
func (p *player) overlay(n int, m *mutation) (string, error) {
	path, text, err := m.apply(p.files)
	if err != nil {
		return "", err
	}
	mutated := filepath.Join(p.dir, fmt.Sprintf("%d.go", n))
	if err := os.WriteFile(mutated, []byte(text), 0o600); err != nil {
		return "", err
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutated}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(p.dir, fmt.Sprintf("%d.json", n))
	return overlay, os.WriteFile(overlay, list, 0o600)
}

var finding = regexp.MustCompile(`(?m)seed \d+: (.*)$|^(panic: .*)$`)

// found is the first thing that a failed run says.
func found(out string) string {
	f := finding.FindStringSubmatch(out)
	if f == nil {
		return ""
	}
	how := f[1] + f[2]
	if len(how) > 90 {
		how = how[:90] + "..."
	}
	return how
}

func main() {
	steps := flag.Int("steps", 400_000, "how many random steps each mutation is played for at most")
	only := flag.String("run", "", "play the mutations whose names match this expression, and demand nothing")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	defer cancel()
	if err := playAll(ctx, *steps, *only); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func playAll(ctx context.Context, steps int, only string) error {
	chosen, err := regexp.Compile(only)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	p := &player{root: root, dir: dir, steps: steps}
	if p.files, err = load(root); err != nil {
		return err
	}
	if o := p.play(ctx, len(mutations), nil); o.err != nil || o.caught {
		return fmt.Errorf("the laws fail without any mutation: %s %v", o.how, o.err)
	}
	caught, played := 0, 0
	for i, o := range p.playEach(ctx, chosen) {
		switch m := &mutations[i]; {
		case !chosen.MatchString(m.name):
			continue
		case o.err != nil:
			return fmt.Errorf("mutation %q: %w", m.name, o.err)
		case o.caught && m.spared != "":
			return fmt.Errorf("mutation %q is listed as one that no law can find, but one does: %s", m.name, o.how)
		case o.caught:
			caught++
		}
		played++
	}
	fmt.Printf("the laws caught %d of %d mutations\n", caught, played)
	if only == "" && caught*100 < played*demanded {
		return fmt.Errorf("%d%% are demanded", demanded)
	}
	return nil
}

// playEach plays the chosen mutations, as many at once as there are CPUs, and prints what becomes of each.
func (p *player) playEach(ctx context.Context, chosen *regexp.Regexp) []outcome {
	outcomes := make([]outcome, len(mutations))
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.NumCPU() {
		workers.Go(func() {
			for i := range next {
				m, o := &mutations[i], p.play(ctx, i, &mutations[i])
				outcomes[i] = o
				result := "survived"
				switch {
				case o.err != nil:
					result = "error"
				case o.caught:
					result = "caught"
				}
				fmt.Printf("%-9s%5.0fs  %-64s %s\n", result, o.took.Seconds(), m.name, cmp.Or(m.spared, o.how))
			}
		})
	}
	for i := range mutations {
		if chosen.MatchString(mutations[i].name) {
			next <- i
		}
	}
	close(next)
	workers.Wait()
	return outcomes
}
