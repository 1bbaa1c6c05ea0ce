package usage_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

func TestMain(m *testing.M) {
	os.Exit(mounttest.Main(func() int { return mounttest.Run(m) }))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ram makes a directory on a tmpfs of its own: there a page that is written is a page that is taken, and a directory takes nothing.
func ram(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64m,nr_inodes=200k"))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, os.Mkdir(dir+"/ram", 0o700))
	return dir + "/ram"
}

func measure(t testing.TB, m *usage.Meter, dir string) usage.Usage {
	t.Helper()
	u, err := m.Measure(t.Context(), dir)
	must(t, err)
	return u
}

// pages is a file's content that takes n pages.
func pages(n int) []byte { return make([]byte, n*os.Getpagesize()) }

func TestWhatADirHolds(t *testing.T) {
	page := int64(os.Getpagesize())
	for name, c := range map[string]struct {
		fill func(dir string) error
		want usage.Usage // in pages
	}{
		"nothing": {func(string) error { return nil }, usage.Usage{Inodes: 1}},
		"files in directories": {func(dir string) error {
			return errors.Join(os.MkdirAll(dir+"/a/b", 0o755), os.WriteFile(dir+"/a/b/f", pages(3), 0o600), os.WriteFile(dir+"/a/g", []byte("x"), 0o600))
		}, usage.Usage{Bytes: 4, Inodes: 5}},
		"holes take no space": {func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/f", pages(1), 0o600), os.Truncate(dir+"/f", 1<<30))
		}, usage.Usage{Bytes: 1, Inodes: 2}},
		"a file with three names counts once": {func(dir string) error {
			return errors.Join(os.WriteFile(dir+"/f", pages(2), 0o600), os.Mkdir(dir+"/d", 0o755), os.Link(dir+"/f", dir+"/g"), os.Link(dir+"/f", dir+"/d/h"))
		}, usage.Usage{Bytes: 2, Inodes: 3}},
		"a link isn't followed": {func(dir string) error {
			return errors.Join(os.Symlink("/", dir+"/root"), os.Symlink(dir, dir+"/self"))
		}, usage.Usage{Inodes: 3}},
		"other things": {func(dir string) error {
			return errors.Join(unix.Mkfifo(dir+"/fifo", 0o600), unix.Mknod(dir+"/null", unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
		}, usage.Usage{Inodes: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := ram(t)
			must(t, c.fill(dir))
			c.want.Bytes *= page
			if got := measure(t, usage.New(usage.Config{}), dir); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestWhatIsMountedInItDoesntCount(t *testing.T) {
	dir := ram(t)
	must(t, os.Mkdir(dir+"/at", 0o755))
	must(t, os.WriteFile(dir+"/f", pages(1), 0o600))
	must(t, unix.Mount("tmpfs", dir+"/at", "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir+"/at", unix.MNT_DETACH)) })
	must(t, os.WriteFile(dir+"/at/large", pages(100), 0o600))
	if got, want := measure(t, usage.New(usage.Config{}), dir), (usage.Usage{Bytes: int64(os.Getpagesize()), Inodes: 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// A container whose mounts reach the node may mount something on its volume that never answers.
func TestWhatIsMountedOnItIsntAsked(t *testing.T) {
	dir := t.TempDir()
	server := mounttest.Mount(t, dir)
	server.Hang()
	m := usage.New(usage.Config{})
	done := make(chan error, 2)
	go func() {
		_, err := m.Measure(t.Context(), dir)
		done <- err
		_, err = m.Assign(dir)
		done <- err
	}()
	for answers := 0; answers < 2; {
		select {
		case err := <-done:
			answers++
			if !errors.Is(err, unix.EXDEV) || !strings.Contains(err.Error(), dir) {
				t.Errorf("got %v, want that something is mounted on %s", err, dir)
			}
		case <-time.After(time.Millisecond):
			if server.Waiting() > 0 {
				t.Error("it waits for the file system that hangs")
				server.Resume()
			}
		}
	}
}

func TestADirThatIsntThereHoldsNothing(t *testing.T) {
	if got := measure(t, usage.New(usage.Config{}), t.TempDir()+"/gone"); got != (usage.Usage{}) {
		t.Errorf("got %+v", got)
	}
}

func TestALinkInsteadOfADirIsRefused(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink("/", dir+"/link"))
	if u, err := usage.New(usage.Config{}).Measure(t.Context(), dir+"/link"); err == nil || u != (usage.Usage{}) {
		t.Errorf("got %+v, %v", u, err)
	}
}

// However many files have several names, what is remembered of them is bounded, and the sum stays right.
func TestManyFilesWithTwoNames(t *testing.T) {
	const n = 12_000
	dir := ram(t)
	must(t, os.Mkdir(dir+"/other", 0o755))
	for i := range n {
		must(t, os.WriteFile(dir+"/"+strconv.Itoa(i), nil, 0o600))
		must(t, os.Link(dir+"/"+strconv.Itoa(i), dir+"/other/"+strconv.Itoa(i)))
	}
	if got, want := measure(t, usage.New(usage.Config{}), dir), (usage.Usage{Inodes: n + 2}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestManyFilesAreCountedOverManySteps(t *testing.T) {
	const n = 5000
	dir := ram(t)
	for i := range n {
		must(t, os.MkdirAll(fmt.Sprintf("%s/%d", dir, i%7), 0o755))
		must(t, os.WriteFile(fmt.Sprintf("%s/%d/%d", dir, i%7, i), []byte("x"), 0o600))
	}
	want := usage.Usage{Bytes: n * int64(os.Getpagesize()), Inodes: n + 7 + 1}
	if got := measure(t, usage.New(usage.Config{}), dir); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// files makes a directory with so many files.
func files(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	if n > 1000 {
		dir = ram(t)
	}
	for i := range n {
		must(t, os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600))
	}
	return dir
}

func TestAllWalksTogetherKeepToTheRate(t *testing.T) {
	large, second := files(t, 5000), files(t, 5000)
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		m := usage.New(usage.Config{Rate: 1000})
		done := make(chan error)
		for _, dir := range []string{large, second} {
			go func() {
				_, err := m.Measure(t.Context(), dir)
				done <- err
			}()
		}
		must(t, errors.Join(<-done, <-done))
		// 10,000 files at 1,000 a second, but for those that may come at once.
		if took := time.Since(began); took < 7*time.Second || took > 11*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestASmallDirDoesntWaitForALargeOne(t *testing.T) {
	large, small := files(t, 10_000), files(t, 3)
	synctest.Test(t, func(t *testing.T) {
		m := usage.New(usage.Config{Rate: 1000})
		done := make(chan error)
		for range 3 { // more than work at a time
			go func() {
				_, err := m.Measure(t.Context(), large)
				done <- err
			}()
		}
		synctest.Wait() // they wait for their next step
		began := time.Now()
		_, err := m.Measure(t.Context(), small)
		must(t, err)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		must(t, errors.Join(<-done, <-done, <-done))
	})
}

func TestManySmallDirsCostLittle(t *testing.T) {
	dirs := make([]string, 600)
	for i := range dirs {
		dirs[i] = files(t, 2)
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		m := usage.New(usage.Config{Rate: 1000})
		for _, dir := range dirs {
			_, err := m.Measure(t.Context(), dir)
			must(t, err)
		}
		if took := time.Since(began); took > 2*time.Second { // they hold 1,200 files
			t.Errorf("it took %v", took)
		}
	})
}

func TestHowLongAWalkTookIsReported(t *testing.T) {
	dir := files(t, 5000)
	synctest.Test(t, func(t *testing.T) {
		var told []time.Duration
		m := usage.New(usage.Config{Rate: 1000, Took: func(quota bool, took time.Duration) {
			if quota {
				t.Error("a tmpfs is said to have told")
			}
			told = append(told, took)
		}})
		began := time.Now()
		measure(t, m, dir)
		if len(told) != 1 || told[0] != time.Since(began) || told[0] == 0 {
			t.Errorf("told %v, it took %v", told, time.Since(began))
		}
		measure(t, m, dir+"/gone")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := m.Measure(ctx, dir); err == nil {
			t.Error("it was measured when it was given up")
		}
		if len(told) != 1 {
			t.Errorf("told of what wasn't measured: %v", told)
		}
	})
}

func TestAStoppedWalkReportsWhatItSaw(t *testing.T) {
	dir := files(t, 5000)
	synctest.Test(t, func(t *testing.T) {
		m := usage.New(usage.Config{Rate: 1000})
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		u, err := m.Measure(ctx, dir)
		if !errors.Is(err, context.Canceled) || u.Inodes == 0 || u.Inodes > 4000 {
			t.Errorf("got %+v, %v", u, err)
		}
	})
}

func TestWithoutProjectQuotasNothingIsAssigned(t *testing.T) {
	m, dir := usage.New(usage.Config{}), ram(t)
	ok, err := m.Assign(dir)
	must(t, err)
	if ok {
		t.Error("a tmpfs is said to have project quotas")
	}
	must(t, os.WriteFile(dir+"/f", pages(1), 0o600))
	if got := measure(t, m, dir); got.Inodes != 2 {
		t.Errorf("got %+v", got)
	}
	m.Forget(dir)
}

func BenchmarkMeasureASmallDir(b *testing.B) {
	dir := files(b, 3)
	m := usage.New(usage.Config{Rate: 1 << 30})
	for b.Loop() {
		measure(b, m, dir)
	}
}
