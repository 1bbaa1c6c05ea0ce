package filewatch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch/filewatchtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// every is the interval of the tests' instances.
const every = 20 * time.Millisecond

func newInstance(log logr.Logger) *Instance {
	i := New(every, log)
	i.granularity = every
	return i
}

// polled reports whether the tests run where nothing can be watched.
func polled() bool { return os.Getenv(polledMark) != "" }

const patience = 30 * time.Second

// reader reads a file and a directory of drop-ins again whenever it is told to.
type reader struct {
	t               *testing.T
	file, directory string
	w               *Settled
	// polled says that nothing can be watched.
	polled bool
	// mark comes and goes; marked gets a value when the watcher has heard of that.
	mark   string
	marked chan struct{}
}

// watch watches a file and a directory until the end of the test.
func watch(t *testing.T, file, directory string) *reader {
	t.Helper()
	r := &reader{t: t, file: file, directory: directory, mark: filepath.Join(t.TempDir(), "mark"), marked: make(chan struct{}, 1), polled: polled()}
	log := funcr.New(func(_, args string) {
		if strings.Contains(args, r.mark) {
			r.forget() // what comes after this was told after this
			r.marked <- struct{}{}
		}
	}, funcr.Options{Verbosity: 4})
	r.w = newInstance(logr.Discard()).NewSettled([]string{file, directory, r.mark}, func(name string) bool { return filepath.Ext(name) != ".swp" }, log)
	r.w.settle = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.w.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	r.await("at first", r.read()) // from here on everything is noticed
	return r
}

// catchUp waits until all that was done before has been told and taken, so that it can't
// be taken for news of what is done next: the kernel tells things in order.
func (r *reader) catchUp() {
	r.t.Helper()
	for r.polled {
		select {
		case <-r.w.Changed():
		case <-time.After(10 * every): // nothing tells that it was read
			return
		}
	}
	if os.Symlink("nothing", r.mark) != nil {
		if err := os.Remove(r.mark); err != nil {
			r.t.Fatal(err)
		}
	}
	late := time.After(patience)
	for _, ch := range []<-chan struct{}{r.marked, r.w.Changed()} {
		select {
		case <-ch:
		case <-late:
			r.t.Fatal("the watcher doesn't catch up")
		}
	}
}

func (r *reader) forget() {
	select {
	case <-r.w.Changed():
	default:
	}
}

// read returns what is in all files.
func (r *reader) read() string {
	text, err := os.ReadFile(r.file)
	out := fmt.Sprintf("%s %v\n", text, err)
	_ = filepath.WalkDir(r.directory+"/", func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			text, err := os.ReadFile(path)
			out += fmt.Sprintf("%s: %s %v\n", path, text, err)
		}
		return nil
	})
	return out
}

// await waits until who reads whenever something is told has read this.
func (r *reader) await(what, want string) {
	r.t.Helper()
	late := time.After(patience)
	got := ""
	for {
		select {
		case <-r.w.Changed():
			if got = r.read(); got == want {
				return
			}
		case <-late:
			r.t.Fatalf("%s: not told in %s; read last\n%swant\n%s", what, patience, got, want)
		}
	}
}

// does does something and waits until it is told.
func (r *reader) does(what string, do ...func() error) {
	r.t.Helper()
	r.catchUp()
	for _, f := range do {
		if err := f(); err != nil {
			r.t.Fatalf("%s: %v", what, err)
		}
	}
	r.await(what, r.read())
}

func write(path, text string) func() error {
	return func() error { return os.WriteFile(path, []byte(text), 0o600) }
}

// replace puts a new file in another's place.
func replace(path, text string) func() error {
	return func() error { return errors.Join(write(path+".new", text)(), os.Rename(path+".new", path)) }
}

// relink makes a link lead elsewhere, at once.
func relink(path, target string) func() error {
	return func() error { return errors.Join(os.Symlink(target, path+".new"), os.Rename(path+".new", path)) }
}

func mkdir(path string) func() error { return func() error { return os.MkdirAll(path, 0o700) } }

func remove(path string) func() error { return func() error { return os.RemoveAll(path) } }

func move(from, to string) func() error { return func() error { return os.Rename(from, to) } }

// all does one after the other.
func all(t *testing.T, do ...func() error) {
	t.Helper()
	for _, f := range do {
		if err := f(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	other := filepath.Join(dir, "other")
	r := watch(t, file, filepath.Join(dir, "none"))
	r.does("made", write(file, "1"))
	r.does("written in place", write(file, "2"))
	r.does("replaced", replace(file, "3"))
	r.does("written in place after that", write(file, "4"))
	r.does("removed", remove(file))
	r.does("made again", write(file, "5"))
	r.does("moved away", move(file, file+".old"))
	r.does("moved back", move(file+".old", file))
	r.does("replaced by a link", write(other, "6"), relink(file, "other"))
	r.does("its target written", write(other, "7"))
	r.does("its target replaced", replace(other, "8"))
	r.does("a loop of links", relink(file, filepath.Base(file)))
	r.does("replaced by a file", replace(file, "9"))
	r.does("a file becomes a directory", remove(file), mkdir(file))
}

func TestFileByAnotherName(t *testing.T) {
	file, twin := filepath.Join(t.TempDir(), "config.yaml"), filepath.Join(t.TempDir(), "twin")
	all(t, write(file, "1"), func() error { return os.Link(file, twin) })
	r := watch(t, file, filepath.Dir(file)+"/none")
	r.does("written by its other name", write(twin, "2"))
}

func TestDir(t *testing.T) {
	dir := t.TempDir()
	directory := filepath.Join(dir, "a", "conf.d")
	a, b, c := filepath.Join(directory, "a.conf"), filepath.Join(directory, "b.conf"), filepath.Join(directory, "sub", "c.conf")
	next, outside := filepath.Join(dir, "next"), filepath.Join(dir, "outside.conf")
	r := watch(t, filepath.Join(dir, "none"), directory)
	r.does("made with its parents", mkdir(directory), write(a, "1"))
	r.does("added", write(b, "2"))
	r.does("written in place", write(a, "3"))
	r.does("replaced", replace(a, "4"))
	r.does("removed", remove(a))
	r.does("a directory below", mkdir(filepath.Dir(c)), write(c, "5"))
	r.does("written there", write(c, "6"))
	r.does("the directory removed", remove(directory))
	r.does("the directory back", mkdir(directory), write(b, "7"))
	r.does("written in place after that", write(b, "8"))
	r.does("the directory replaced", mkdir(next), write(filepath.Join(next, "b.conf"), "9"), move(directory, filepath.Join(dir, "old")), move(next, directory))
	r.does("written in the new one", write(b, "10"))
	r.does("a directory above moved away", move(filepath.Join(dir, "a"), filepath.Join(dir, "gone")))
	r.does("another in its place", mkdir(directory), write(a, "11"))
	r.does("a link to elsewhere", write(outside, "12"), relink(filepath.Join(directory, "link.conf"), outside))
	r.does("written there", write(outside, "13"))
	r.does("the whole removed", remove(filepath.Join(dir, "a")))
	r.does("the whole back", mkdir(directory), write(a, "14"))
}

// TestMountedConfigMap does what the kubelet's volumes do: the files are links into ..data,
// which is a link to a directory that is never changed, but replaced.
func TestMountedConfigMap(t *testing.T) {
	dir := t.TempDir()
	volume, current := filepath.Join(dir, "volume"), filepath.Join(dir, "current")
	data := func(version string) string { return filepath.Join(volume, "..2026_"+version) }
	publish := func(version string) func() error {
		return func() error {
			return errors.Join(mkdir(data(version))(), write(filepath.Join(data(version), "config.yaml"), version)(),
				write(filepath.Join(data(version), "a.conf"), version)(), relink(filepath.Join(volume, "..data"), filepath.Base(data(version)))())
		}
	}
	all(t, mkdir(volume), publish("1"), relink(filepath.Join(volume, "config.yaml"), "..data/config.yaml"),
		relink(filepath.Join(volume, "a.conf"), "..data/a.conf"), relink(current, volume))
	for name, paths := range map[string][2]string{
		"mounted":        {filepath.Join(volume, "config.yaml"), volume},
		"behind ..data":  {filepath.Join(volume, "..data", "config.yaml"), filepath.Join(volume, "..data")},
		"behind another": {filepath.Join(current, "config.yaml"), filepath.Join(current, "..data")},
	} {
		t.Run(name, func(t *testing.T) {
			r := watch(t, paths[0], paths[1])
			r.does("new version", publish(name+"2"))
			r.does("next version", publish(name+"3"), remove(data(name+"2")))
			r.does("one more", publish(name+"4"), remove(data(name+"3")))
		})
	}
}

func TestDirByALink(t *testing.T) {
	dir := t.TempDir()
	link, v1, v2 := filepath.Join(dir, "link"), filepath.Join(dir, "v1"), filepath.Join(dir, "v2")
	all(t, mkdir(v1), mkdir(v2), relink(link, "v1"))
	r := watch(t, filepath.Join(link, "config.yaml"), link)
	r.does("written", write(filepath.Join(v1, "config.yaml"), "1"))
	r.does("another directory", write(filepath.Join(v2, "config.yaml"), "2"), relink(link, v2))
	r.does("written there", write(filepath.Join(v2, "b.conf"), "3"))
	r.does("no directory", remove(link))
	r.does("back to the first", relink(link, "./v2/../v1"))
	r.does("written there", write(filepath.Join(v1, "config.yaml"), "4"))
}

func TestRelativePath(t *testing.T) {
	t.Chdir(t.TempDir())
	r := watch(t, "config.yaml", "conf.d")
	r.does("made", mkdir("conf.d"), write("conf.d/a", "1"), write("config.yaml", "2"))
	r.does("written", write("conf.d/a", "3"))
}

// TestAnything does things in any order, and at times faster than they can be noticed:
// in the end it is always told.
func TestAnything(t *testing.T) {
	dir := t.TempDir()
	file, directory := filepath.Join(dir, "x", "config"), filepath.Join(dir, "x", "conf.d")
	r := watch(t, file, directory)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	paths := []string{"x", "y", "x/config", "y/config", "x/conf.d", "y/conf.d", "x/conf.d/a", "x/conf.d/b", "y/conf.d/a"}
	one := func() string { return filepath.Join(dir, paths[random.IntN(len(paths))]) }
	anything := func() error {
		for range 1 + random.IntN(12) {
			// Much of it isn't possible as things are.
			switch random.IntN(7) {
			case 0:
				_ = os.RemoveAll(one())
			case 1:
				_ = os.Rename(one(), one())
			case 2:
				_ = os.Symlink(one(), one())
			case 3:
				_ = os.MkdirAll(one(), 0o700)
			default:
				_ = write(one(), fmt.Sprint(random.Uint64()))()
			}
		}
		return nil
	}
	rounds := 20
	if r.polled {
		rounds = 5 // which take their time
	}
	for round := range rounds {
		text := fmt.Sprint(round)
		// However things are then, the next change is noticed.
		r.does("after "+text, anything, remove(filepath.Join(dir, "x")), mkdir(directory), write(filepath.Join(directory, "a"), text), write(file, text))
		r.does("then "+text, write(filepath.Join(directory, "a"), "then "+text))
		r.does("at last "+text, replace(file, "at last "+text))
	}
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := newInstance(logr.Discard()).NewSettled([]string{t.TempDir()}, anyName, logr.Discard()).Run(ctx); err != nil {
		t.Error(err)
	}
}

// A file that is written in place, by and by, is told of when its writer closes it.
func TestFilesAreWholeWhenReported(t *testing.T) {
	dir := t.TempDir()
	file, directory := filepath.Join(dir, "c"), filepath.Join(dir, "d")
	if err := os.Mkdir(directory, 0o700); err != nil {
		t.Fatal(err)
	}
	// An editor's file beside those that count stays open all the time.
	swap, err := os.Create(filepath.Join(directory, ".a.conf.swp"))
	if err != nil {
		t.Fatal(err)
	}
	defer swap.Close()
	drop := filepath.Join(directory, "a.conf")
	if err := errors.Join(os.WriteFile(file, []byte("maxPods: 110"), 0o600), os.WriteFile(drop, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r := watch(t, file, directory)
	for _, path := range []string{file, drop} {
		r.catchUp()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"maxPods", ": 1", "1"} {
			if _, err := f.WriteString(part); err != nil {
				t.Fatal(err)
			}
			select {
			case <-r.w.Changed():
				t.Fatalf("%s: told after %q", path, part)
			case <-time.After(10 * r.w.settle):
			}
		}
		if _, err := f.WriteString("0"); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		r.await("closed", r.read())
	}
}

// Whoever keeps what was there before doesn't have us watch all of it for good.
func TestWatchesDontPileUp(t *testing.T) {
	file, directory := filepath.Join(t.TempDir(), "c"), filepath.Join(t.TempDir(), "d")
	drop := filepath.Join(directory, "a.conf")
	if err := errors.Join(os.Mkdir(directory, 0o700), os.WriteFile(file, nil, 0o600), os.WriteFile(drop, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	r := watch(t, file, directory)
	_, first := filewatchtest.Count(t)
	for i := range 50 {
		for _, path := range []string{file, drop} {
			next := path + ".new"
			if err := errors.Join(os.Rename(path, fmt.Sprintf("%s.%d.swp", path, i)), os.WriteFile(next, nil, 0o600), os.Rename(next, path)); err != nil {
				t.Fatal(err)
			}
		}
		r.catchUp()
	}
	if _, now := filewatchtest.Count(t); now > first+1 { // the mark comes and goes
		t.Errorf("%d watches have become %d", first, now)
	}
}
