package filewatch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch/filewatchtest"
)

// polledMark is set in the environment of tests that run where nothing can be watched.
const polledMark = "DECKHAND_TEST_POLLED"

// TestSettledReads: what holds for files that are watched holds for files that can't be.
func TestSettledReads(t *testing.T) {
	filewatchtest.Run(t, filewatchtest.Limits{Watches: filewatchtest.Plenty}, func(t *testing.T) {
		cmd := exec.Command(os.Args[0], "-test.count=1", "-test.v", "-test.run=^(TestFile|TestFileByAnotherName|TestDir|TestDirByALink|TestMountedConfigMap|TestRelativePath|TestAnything|TestFilesAreWholeWhenReported)$")
		cmd.Env = append(os.Environ(), polledMark+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || strings.Count(string(out), "\n--- PASS") != 8 {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// lines collects log lines.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, args)
	}, funcr.Options{})
}

// await waits for as many lines as are wanted, which contain these words.
func (l *lines) await(t *testing.T, want ...string) {
	t.Helper()
	for late := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		got := strings.Join(l.all, "\n")
		so := len(l.all) == len(want)
		for i := 0; so && i < len(want); i++ {
			so = strings.Contains(l.all[i], want[i])
		}
		l.mu.Unlock()
		if so {
			return
		}
		if time.Now().After(late) {
			t.Fatalf("logged\n%s\nwant %q", got, want)
		}
	}
}

// TestNoInstanceIsLeft: without an inotify instance, files are read at intervals. One log line says so, and the files are
// watched as soon as there is an instance.
func TestNoInstanceIsLeft(t *testing.T) {
	filewatchtest.Run(t, filewatchtest.Limits{Watches: filewatchtest.Plenty}, func(t *testing.T) {
		log := &lines{}
		i := newInstance(log.logger())
		dir, other := t.TempDir(), t.TempDir()
		var watchers []*Watcher
		for _, path := range []string{dir, other, dir} {
			w := i.Open(func(t Trail) { t.Path(path) })
			defer w.Close()
			err := w.Arm()
			if err == nil || !strings.Contains(err.Error(), "(user.max_inotify_instances is 0)") || !strings.Contains(err.Error(), "sysctl -w user.max_inotify_instances=1024") {
				t.Errorf("says %v", err)
			}
			watchers = append(watchers, w)
		}
		log.await(t, "max_inotify_instances")
		if since, err := i.Problem(); err == nil || time.Since(since) > patience {
			t.Errorf("the problem is %v, since %v", err, since)
		}
		for n, name := range []string{"a", "b"} {
			do(t, os.WriteFile(filepath.Join(dir, name), nil, 0o600))
			for _, w := range []*Watcher{watchers[0], watchers[2]} {
				await(t, w, Event{Op: Rescan})
				if n == 0 && w.Arm() == nil {
					t.Error("it can be watched all at once")
				}
			}
		}
		filewatchtest.Set(t, filewatchtest.Limits{Instances: 1, Watches: filewatchtest.Plenty})
		log.await(t, "max_inotify_instances", "again")
		for _, w := range watchers {
			await(t, w, Event{Op: Rescan})
			arm(t, w)
		}
		if since, err := i.Problem(); err != nil {
			t.Errorf("the problem is %v, since %v", err, since)
		}
		if n, _ := filewatchtest.Count(t); n != 1 {
			t.Errorf("%d instances", n)
		}
		do(t, os.WriteFile(filepath.Join(dir, "c"), nil, 0o600))
		for _, w := range []*Watcher{watchers[0], watchers[2]} {
			await(t, w, Event{Name: "c", Op: Done})
			if !w.due.IsZero() {
				t.Error("it is read though it is watched")
			}
		}
	})
}

// TestNoWatchIsLeft: at max_user_watches, the log names that limit and not a full disk, and only further files are read at
// intervals.
func TestNoWatchIsLeft(t *testing.T) {
	filewatchtest.Run(t, filewatchtest.Limits{Instances: 1, Watches: filewatchtest.Plenty}, func(t *testing.T) {
		log := &lines{}
		i := newInstance(log.logger())
		watched, late, file := t.TempDir(), filepath.Join(t.TempDir(), "late"), filepath.Join(t.TempDir(), "file")
		do(t, os.Mkdir(late, 0o700))
		do(t, os.WriteFile(file, nil, 0o600))
		open := func(path string) *Watcher {
			w := i.Open(func(t Trail) { t.Directory(path) })
			t.Cleanup(w.Close)
			return w
		}
		first := open(watched)
		arm(t, first)
		filewatchtest.Set(t, filewatchtest.Limits{Instances: 1, Watches: 1})
		second, again := open(late), open(watched)
		err := second.Arm()
		if err == nil || !strings.Contains(err.Error(), "max_inotify_watches is 1)") || !strings.Contains(err.Error(), "sysctl -w user.max_inotify_watches=524288") {
			t.Errorf("says %v", err)
		}
		if strings.Contains(err.Error(), "space") || atomicfile.DiskFull(err) {
			t.Errorf("%v counts as a full disk", err)
		}
		arm(t, again) // which shares the first one's watch
		writes := i.NewFirstWrites()
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { defer close(ran); writes.Run(ctx) }()
		defer func() { stop(); <-ran }()
		for errors.Is(writes.Watch(file), os.ErrClosed) { // until it runs
			time.Sleep(time.Millisecond)
		}
		if err := writes.Watch(file); err == nil || atomicfile.DiskFull(err) {
			t.Errorf("says %v", err)
		}

		do(t, os.WriteFile(filepath.Join(watched, "f"), nil, 0o600))
		await(t, first, Event{Name: "f", Op: Done})
		await(t, again, Event{Name: "f", Op: Done})
		do(t, os.WriteFile(filepath.Join(late, "f"), nil, 0o600))
		await(t, second, Event{Op: Rescan})
		log.await(t, "max_inotify_watches")

		filewatchtest.Set(t, filewatchtest.Limits{Instances: 1, Watches: 3})
		log.await(t, "max_inotify_watches", "again")
		if got := <-writes.Written(); fmt.Sprint(got) != fmt.Sprint([]string{file}) {
			t.Errorf("written: %v", got)
		}
		do(t, os.WriteFile(filepath.Join(late, "g"), nil, 0o600))
		await(t, second, Event{Name: "g", Op: Done})
		do(t, os.WriteFile(file, []byte("more"), 0o600))
		if got := <-writes.Written(); fmt.Sprint(got) != fmt.Sprint([]string{file}) {
			t.Errorf("written: %v", got)
		}
		// At the limit, watches fail and succeed in turn: that isn't logged again.
		filewatchtest.Set(t, filewatchtest.Limits{Instances: 1, Watches: 1})
		for range 3 {
			w := open(t.TempDir())
			if w.Arm() == nil {
				t.Error("more is watched than may be")
			}
			w.lead = func(Trail) {}
			arm(t, w)
		}
		log.await(t, "max_inotify_watches", "again")
	})
}

// TestFailingWatcherLeaves: with the last watcher that can't watch its files, the failure ends.
func TestFailingWatcherLeaves(t *testing.T) {
	filewatchtest.Run(t, filewatchtest.Limits{Instances: 1, Watches: 1}, func(t *testing.T) {
		log := &lines{}
		i := newInstance(log.logger())
		var watchers []*Watcher
		for range 3 {
			dir := t.TempDir()
			watchers = append(watchers, i.Open(func(t Trail) { t.Directory(dir) }))
		}
		arm(t, watchers[0])
		for _, w := range watchers[1:] {
			if w.Arm() == nil {
				t.Error("more is watched than may be")
			}
		}
		watchers[1].Close()
		log.await(t, "max_inotify_watches")
		if _, err := i.Problem(); err == nil {
			t.Error("the problem of another watcher is over")
		}
		watchers[2].Close()
		log.await(t, "max_inotify_watches", "again")
		watchers[0].Close()
		log.await(t, "max_inotify_watches", "again")
	})
}

// TestNoDescriptorIsLeft: with as many open files as the process may have, the sysctl would be the wrong advice.
func TestNoDescriptorIsLeft(t *testing.T) {
	filewatchtest.Run(t, filewatchtest.Limits{Instances: 1, Watches: filewatchtest.Plenty}, func(t *testing.T) {
		w := New(time.Hour, logr.Discard()).Open(func(t Trail) { t.Directory("/") })
		defer w.Close()
		var old unix.Rlimit
		do(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
		do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: old.Max}))
		err := w.Arm()
		do(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old))
		if err == nil || !strings.Contains(err.Error(), "ulimit -n") || strings.Contains(err.Error(), "sysctl") {
			t.Errorf("says %v", err)
		}
	})
}

// TestGoneFilesAreForgotten: the files of containers that are gone aren't tried for ever, and a limit is one error,
// however many files wait.
func TestGoneFilesAreForgotten(t *testing.T) {
	filewatchtest.Run(t, filewatchtest.Limits{Watches: filewatchtest.Plenty}, func(t *testing.T) {
		i := newInstance(logr.Discard())
		writes := i.NewFirstWrites()
		ctx, stop := context.WithCancel(t.Context())
		ran := make(chan struct{})
		go func() { defer close(ran); writes.Run(ctx) }()
		defer func() { stop(); <-ran }()
		dir, want := t.TempDir(), []string{}
		for n := range 100 {
			path := filepath.Join(dir, fmt.Sprint(n))
			do(t, os.WriteFile(path, nil, 0o600))
			for errors.Is(writes.Watch(path), os.ErrClosed) { // until it runs
				time.Sleep(time.Millisecond)
			}
			if n%2 == 0 {
				do(t, os.Remove(path))
			} else {
				want = append(want, path)
			}
		}
		i.mu.Lock()
		if errs := i.subscribers[writes]; len(errs) != 1 {
			t.Errorf("%d errors for one limit", len(errs))
		}
		i.mu.Unlock()
		for late := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
			writes.mu.Lock()
			n := len(writes.failed)
			writes.mu.Unlock()
			if n == len(want) {
				break
			}
			if time.Now().After(late) {
				t.Fatalf("%d files are tried again, want %d", n, len(want))
			}
		}
		filewatchtest.Set(t, filewatchtest.Limits{Instances: 1, Watches: filewatchtest.Plenty})
		var got []string
		for len(got) < len(want) {
			got = append(got, <-writes.Written()...)
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("written: %v, want %v", got, want)
		}
	})
}
