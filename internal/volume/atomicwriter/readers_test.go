package atomicwriter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// numbered is what a file has in generation n: more than is read or written at once.
func numbered(n int) File { return file(strings.Repeat(fmt.Sprintf("generation %06d\n", n), 8000)) }

// generationOf tells from which generation the bytes are, all of them.
func generationOf(data []byte) (int, error) {
	var n int
	if _, err := fmt.Sscanf(string(data[:min(len(data), 18)]), "generation %d", &n); err != nil {
		return 0, fmt.Errorf("%d bytes: %w", len(data), err)
	}
	if string(data) != string(numbered(n).Data) {
		return 0, fmt.Errorf("%d bytes, which aren't all of generation %d", len(data), n)
	}
	return n, nil
}

// reader reads in a way of its own until it is told to stop, and reports what is wrong.
type reader func(dir string) error

// overLink opens a file that every generation has. Somebody who is held up between two steps
// of walking the path, for longer than two updates take, may miss it, but not twice.
func overLink(name string) reader {
	last := 0
	return func(dir string) error {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			data, err = os.ReadFile(filepath.Join(dir, name))
		}
		if err != nil {
			return err
		}
		n, err := generationOf(data)
		if err == nil && n < last {
			err = fmt.Errorf("%s goes back from generation %d to %d", name, last, n)
		}
		last = n
		return err
	}
}

// sometimes opens a file that only every second generation has.
func sometimes(name string, odd int) reader {
	return func(dir string) error {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		n, err := generationOf(data)
		if err == nil && n%2 != odd {
			err = fmt.Errorf("%s is there in generation %d", name, n)
		}
		return err
	}
}

// together opens the directory ..data and reads all files in it: they are of one generation,
// or the directory is gone meanwhile.
func together(dir string) error {
	directory, err := os.OpenRoot(filepath.Join(dir, dataLink))
	if errors.Is(err, fs.ErrNotExist) {
		directory, err = os.OpenRoot(filepath.Join(dir, dataLink))
	}
	if err != nil {
		return err
	}
	defer directory.Close()
	first := -1
	for _, name := range []string{"a", "b", "sub/c"} {
		data, err := directory.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		n, err := generationOf(data)
		if err != nil {
			return err
		}
		if first < 0 {
			first = n
		}
		if n != first {
			return fmt.Errorf("%s is of generation %d, another file beside it of %d", name, n, first)
		}
	}
	return nil
}

// slowly opens a file and reads it bit by bit: one that is open stays whole.
func slowly(dir string) error {
	f, err := os.Open(filepath.Join(dir, "a"))
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.Open(filepath.Join(dir, "a"))
	}
	if err != nil {
		return err
	}
	defer f.Close()
	var all []byte
	buf := make([]byte, 999)
	for {
		n, err := f.Read(buf)
		all = append(all, buf[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	_, err = generationOf(all)
	return err
}

func generationFiles(n int) map[string]File {
	files := map[string]File{"a": numbered(n), "b": numbered(n), "sub/c": numbered(n)}
	files[[]string{"even", "odd"}[n%2]] = numbered(n)
	return files
}

func TestAnEditReachesReadersWhole(t *testing.T) {
	const updates = 60
	dir := t.TempDir()
	write(t, dir, generationFiles(0), Options{}, true)
	var stop atomic.Bool
	var wait sync.WaitGroup
	readers := []reader{overLink("a"), overLink("b"), overLink("sub/c"), sometimes("even", 0), sometimes("odd", 1), together, together, slowly}
	rounds := make([]int, len(readers))
	for i, read := range readers {
		wait.Go(func() {
			for last := false; !last; rounds[i]++ {
				last = stop.Load() // what was updated last is read by all
				if err := read(dir); err != nil {
					t.Errorf("reader %d: %v", i, err)
					return
				}
			}
		})
	}
	for n := range updates {
		writeOnce(t, dir, generationFiles(n+1), Options{}, true)
	}
	stop.Store(true)
	wait.Wait()
	t.Logf("each reader's rounds during %d updates: %d", updates, rounds)
}

// TestTheOldFilesStay until the next update, or the next look: whoever was on the way to them still gets there.
func TestTheOldFilesStay(t *testing.T) {
	dir := t.TempDir()
	generations := func() (all []string) {
		t.Helper()
		entries, err := os.ReadDir(dir)
		must(t, err)
		for _, e := range entries {
			if e.IsDir() {
				all = append(all, e.Name())
			}
		}
		return all
	}
	write(t, dir, generationFiles(1), Options{}, true)
	for n := 2; n < 5; n++ {
		old, err := os.Readlink(filepath.Join(dir, dataLink))
		must(t, err)
		writeOnce(t, dir, generationFiles(n), Options{}, true)
		if data, err := os.ReadFile(filepath.Join(dir, old, "a")); err != nil || string(data) != string(numbered(n-1).Data) {
			t.Errorf("who is on the way to the old files doesn't find them: %v", err)
		}
		if data, err := os.ReadFile(filepath.Join(dir, "a")); err != nil || string(data) != string(numbered(n).Data) {
			t.Errorf("readers don't see the new files: %v", err)
		}
		if all := generations(); len(all) != 2 {
			t.Errorf("there are %q", all)
		}
	}
	write(t, dir, generationFiles(4), Options{}, false)
	if all := generations(); len(all) != 1 {
		t.Errorf("there are %q", all)
	}
}

// cancelled is a context that ends when it is looked at for the n-th time.
type cancelled struct {
	context.Context
	n int
}

func (c *cancelled) Err() error {
	if c.n--; c.n < 0 {
		return context.Canceled
	}
	return nil
}

// TestCancelled gives up an update at every moment where that is possible.
func TestCancelled(t *testing.T) {
	before := map[string]File{"a": file("A1"), "gone": file("G1"), "b/c": file("C1")}
	after := map[string]File{"a": file("A2"), "new": file("N2"), "b/c": file("C2")}
	var wants [2]map[string]string
	for i, files := range []map[string]File{before, after} {
		dir := t.TempDir()
		write(t, dir, files, Options{}, true)
		wants[i] = listing(t, dir)
	}
	for n := 0; ; n++ {
		dir := t.TempDir()
		write(t, dir, before, Options{}, true)
		must(t, os.MkdirAll(filepath.Join(dir, tempLink, "in", "the", "way"), 0o700))
		ctx := &cancelled{t.Context(), n}
		changed, err := Write(ctx, dir, after, Options{})
		if err != nil && (changed || !errors.Is(err, context.Canceled)) {
			t.Errorf("given up when looked at for the %d. time: %t, %v", n+1, changed, err)
		}
		must(t, os.RemoveAll(filepath.Join(dir, tempLink)))
		if changed {
			writeOnce(t, dir, after, Options{}, false)
		}
		check(t, dir, wants[map[bool]int{false: 0, true: 1}[changed]])
		if ctx.n >= 0 {
			if n < 3 {
				t.Errorf("it was looked at %d times only", n)
			}
			return
		}
	}
}

// What is left of an update that was killed takes no space from the next one.
func TestLeftoversTakeNoSpace(t *testing.T) {
	large := func(text string) map[string]File {
		return map[string]File{"a": file(strings.Repeat(text, 400<<10))}
	}
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	write(t, dir, large("1"), Options{}, true)
	must(t, os.Mkdir(filepath.Join(dir, "..2020_01_01_00_00_00.123"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "..2020_01_01_00_00_00.123", "a"), large("2")["a"].Data, 0o600))
	write(t, dir, large("3"), Options{}, true)
}

// A volume may lie in memory, and on a disk: the steps are the same, the file systems not.
func TestInMemory(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=3777,gid=9"))
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	for n := range 3 {
		write(t, dir, generationFiles(n), Options{}, true)
		write(t, dir, generationFiles(n), Options{}, false)
	}
	if err := together(dir); err != nil {
		t.Error(err)
	}
}
