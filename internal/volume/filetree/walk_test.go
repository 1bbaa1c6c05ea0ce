package filetree_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume/filetree"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

// ram mounts a tmpfs of its own for large trees: they go with it.
func ram(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=2g,nr_inodes=2m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func begin(t testing.TB, dir string) *filetree.Walk {
	t.Helper()
	top, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	w, err := filetree.New(top)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.Close()
		_ = top.Close()
	})
	return w
}

// rest goes on to the end and returns the names it came to, sorted.
func rest(t testing.TB, w *filetree.Walk, each func()) []string {
	t.Helper()
	var names []string
	for {
		e, err := w.Next()
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, e.Name)
		each()
	}
}

// wood makes a tree of directories and files: every level has two directories and a file.
func wood(t testing.TB, dir string, levels int, names *[]string) {
	t.Helper()
	for i := range 3 {
		name := fmt.Sprintf("%d-%d-%d", levels, i, len(*names))
		*names = append(*names, name)
		path := filepath.Join(dir, name)
		if i == 2 || levels == 0 {
			must(t, os.WriteFile(path, nil, 0o600))
			continue
		}
		must(t, os.Mkdir(path, 0o700))
		wood(t, path, levels-1, names)
	}
}

func TestEveryNameIsMetOnce(t *testing.T) {
	for name, park := range map[string]bool{"at a go": false, "parked after each": true} {
		t.Run(name, func(t *testing.T) {
			dir := ram(t)
			var want []string
			wood(t, dir, 8, &want)
			slices.Sort(want)
			w := begin(t, dir)
			got := rest(t, w, func() {
				if park {
					w.Park()
				}
			})
			if !slices.Equal(got, want) {
				t.Errorf("%d names, want %d", len(got), len(want))
			}
			if w.Lost() || w.TooDeep() {
				t.Error("something was missed in a quiet tree")
			}
		})
	}
}

// descend makes directories in each other, without long paths, and puts a file into each.
func descend(t testing.TB, dir string, levels int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for i := range levels {
		f, err := unix.Openat(fd, "f"+strconv.Itoa(i), unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
		must(t, err)
		must(t, unix.Close(f))
		must(t, unix.Mkdirat(fd, "d", 0o700))
		below, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err)
		must(t, unix.Close(fd))
		fd = below
	}
	must(t, unix.Close(fd))
}

func openDescriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

func TestADeepTreeCostsFewDescriptors(t *testing.T) {
	dir := ram(t)
	descend(t, dir, filetree.MaxDepth+2)
	before := openDescriptors(t)
	w := begin(t, dir)
	most, n := 0, 0
	got := rest(t, w, func() {
		if n++; n%5000 == 0 {
			most = max(most, openDescriptors(t)-before)
		}
	})
	// A directory for each level, and a file in each and in the top one.
	if want := 2*filetree.MaxDepth + 1; len(got) != want {
		t.Errorf("%d names, want %d", len(got), want)
	}
	if w.Lost() {
		t.Error("the way back was lost in a quiet tree")
	}
	if !w.TooDeep() {
		t.Error("it isn't told that there are deeper levels")
	}
	if most > 25 {
		t.Errorf("%d descriptors at a time", most)
	}
	w.Close()
	if left := openDescriptors(t) - before; left > 1 { // the top one, which is the test's
		t.Errorf("%d descriptors are left open", left)
	}
}

func TestAParkedWalkHoldsTwoDescriptors(t *testing.T) {
	dir := ram(t)
	descend(t, dir, 100)
	before := openDescriptors(t)
	w := begin(t, dir)
	for range 120 {
		_, err := w.Next()
		must(t, err)
	}
	w.Park()
	if n := openDescriptors(t) - before - 1; n > 2 { // one is the test's
		t.Errorf("%d descriptors", n)
	}
}

func TestLinksAreMetButNotFollowed(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(outside, "canary"), nil, 0o600))
	must(t, os.Symlink(outside, filepath.Join(dir, "out")))
	must(t, os.Symlink("..", filepath.Join(dir, "up")))
	must(t, os.Symlink("/proc/self/root", filepath.Join(dir, "magic")))
	if got := rest(t, begin(t, dir), func() {}); !slices.Equal(got, []string{"magic", "out", "up"}) {
		t.Errorf("met %v", got)
	}
}

func TestWhatIsMountedIsLeftOut(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	must(t, os.WriteFile(filepath.Join(other, "canary"), nil, 0o600))
	for _, name := range []string{"tmpfs", "bind"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600))
	for at, mount := range map[string]func(at string) error{
		"tmpfs": func(at string) error { return unix.Mount("tmpfs", at, "tmpfs", 0, "") },
		// On the same file system: device numbers can't tell.
		"bind": func(at string) error { return unix.Mount(other, at, "", unix.MS_BIND, "") },
		"file": func(at string) error { return unix.Mount(filepath.Join(other, "canary"), at, "", unix.MS_BIND, "") },
	} {
		at = filepath.Join(dir, at)
		must(t, mount(at))
		t.Cleanup(func() { must(t, unix.Unmount(at, unix.MNT_DETACH)) })
	}
	if got := rest(t, begin(t, dir), func() {}); !slices.Equal(got, []string{"plain"}) {
		t.Errorf("met %v", got)
	}
}

// What is mounted in the tree isn't asked for anything, which might never be answered.
func TestWhatIsMountedAndHangsIsLeftOut(t *testing.T) {
	dir, hung := t.TempDir(), t.TempDir()
	server := mounttest.Mount(t, hung)
	must(t, os.Mkdir(filepath.Join(dir, "directory"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "plain"), nil, 0o600))
	for at, source := range map[string]string{"directory": hung, "file": filepath.Join(hung, mounttest.File)} {
		at = filepath.Join(dir, at)
		must(t, unix.Mount(source, at, "", unix.MS_BIND, ""))
		t.Cleanup(func() { must(t, unix.Unmount(at, unix.MNT_DETACH)) })
	}
	w := begin(t, dir)
	server.Hang()
	done := make(chan []string)
	go func() {
		defer close(done)
		done <- rest(t, w, func() {})
	}()
	for {
		select {
		case got := <-done:
			if !slices.Equal(got, []string{"plain"}) {
				t.Errorf("met %v", got)
			}
			return
		case <-time.After(time.Millisecond):
			if server.Waiting() > 0 {
				t.Error("the walk waits for the file system that hangs")
				server.Resume()
			}
		}
	}
}

func TestTheTopMayBeAMountItself(t *testing.T) {
	dir := ram(t)
	must(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	if got := rest(t, begin(t, dir), func() {}); !slices.Equal(got, []string{"file"}) {
		t.Errorf("met %v", got)
	}
}

func TestAMovedDirLosesItsRestAndNothingElse(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "a"), 0o700))
	deep := filepath.Join(dir, "a", "b")
	must(t, os.Mkdir(deep, 0o700))
	descend(t, deep, 40)
	must(t, os.WriteFile(filepath.Join(elsewhere, "canary"), nil, 0o600))
	w := begin(t, dir)
	for range 60 { // in the depths: the directories above are closed
		_, err := w.Next()
		must(t, err)
	}
	w.Park()
	must(t, os.Rename(deep, filepath.Join(elsewhere, "b")))
	got := rest(t, w, func() {})
	if !w.Lost() {
		t.Error("that something was missed isn't told")
	}
	if slices.Contains(got, "canary") {
		t.Error("the walk left its tree")
	}
}

// yard makes a tree with n directories and n links to a directory outside of it, on one mount. swap has each pair
// change its names.
func yard(t *testing.T, n int) (tree string, swap func(i int)) {
	t.Helper()
	top := ram(t)
	tree = filepath.Join(top, "tree")
	outside := filepath.Join(top, "outside")
	must(t, os.MkdirAll(outside, 0o700))
	must(t, os.WriteFile(filepath.Join(outside, "canary"), nil, 0o600))
	for i := range n {
		must(t, os.MkdirAll(filepath.Join(tree, "directory"+strconv.Itoa(i), "below"), 0o700))
		must(t, os.Symlink("../outside", filepath.Join(tree, "link"+strconv.Itoa(i))))
	}
	return tree, func(i int) {
		directory, link := filepath.Join(tree, "directory"+strconv.Itoa(i)), filepath.Join(tree, "link"+strconv.Itoa(i))
		if err := unix.Renameat2(unix.AT_FDCWD, directory, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE); err != nil {
			t.Error(err)
		}
	}
}

func TestADirThatBecomesALinkAfterItsNameWasReadIsntFollowed(t *testing.T) {
	const n = 40 // their names are read at once
	tree, swap := yard(t, n)
	w := begin(t, tree)
	_, err := w.Next()
	must(t, err)
	for i := range n {
		swap(i)
	}
	if slices.Contains(rest(t, w, func() {}), "canary") {
		t.Error("the walk went through a link")
	}
}

// While somebody swaps directories for links to elsewhere, nothing outside is ever met.
func TestSwappingDirsForLinksLeadsNowhere(t *testing.T) {
	tree, swap := yard(t, 5)
	var swapping sync.WaitGroup
	stop := make(chan struct{})
	swapping.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
				swap(i % 5)
			}
		}
	})
	defer swapping.Wait()
	defer close(stop)
	for range 3000 {
		if slices.Contains(rest(t, begin(t, tree), func() {}), "canary") {
			t.Fatal("the walk went through a link")
		}
	}
}

func BenchmarkWalk(b *testing.B) {
	dir := ram(b)
	for i := range 10_000 {
		must(b, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600))
	}
	for b.Loop() {
		rest(b, begin(b, dir), func() {})
	}
}
