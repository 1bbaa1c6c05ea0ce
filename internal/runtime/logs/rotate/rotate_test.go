package rotate

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// house is a rotator of one container, whose log a test writes.
type house struct {
	t       *testing.T
	root    string
	path    string
	rotator *Rotator
	written *os.File
	// reopens counts calls; fail makes them fail, before or after a new file was made; deaf
	// makes them succeed without one.
	mu          sync.Mutex
	reopens     int
	fail        error
	failHaving  bool
	deaf        bool
	messages    []string
	running     *containers
	dirs, lines int
}

const interval = 10 * time.Second

func newHouse(t *testing.T) *house {
	h := &house{t: t}
	h.root, h.path = logPath(t)
	h.running = &containers{list: []Container{{ID: "c1", Pod: "default/web", Name: "web", Path: h.path}}}
	h.restart()
	h.open()
	t.Cleanup(func() { h.written.Close() })
	return h
}

// restart is a new agent.
func (h *house) restart() {
	log := funcr.New(func(_, args string) { h.messages = append(h.messages, args) }, funcr.Options{})
	h.rotator = New(Config{Root: h.root, MaxSize: 1000, MaxFiles: 4, Interval: interval, Workers: 1}, h.running, h, noWrites{}, log)
	real := h.rotator.open
	h.rotator.open = func(root, name string) (directory, error) {
		h.dirs++
		return real(root, name)
	}
}

func (h *house) open() {
	h.t.Helper()
	f, err := os.OpenFile(h.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		h.t.Fatal(err)
	}
	if h.written != nil {
		h.written.Close()
	}
	h.written = f
}

func (h *house) ReopenContainerLog(context.Context, string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reopens++
	if h.deaf {
		return nil
	}
	if h.fail == nil {
		h.open()
		return nil
	}
	if h.failHaving {
		f, err := os.Create(h.path)
		if err != nil {
			return err
		}
		f.Close()
	}
	return h.fail
}

// rotations is how often the log was reopened.
func (h *house) rotations() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reopens
}

// print writes so many numbered lines, of 50 bytes each.
func (h *house) print(n int) {
	h.t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	var b bytes.Buffer
	for range n {
		text := strings.Repeat("x", 19)
		b.WriteString("2026-01-02T03:04:05Z stdout F " + text + "\n")
		h.lines++
	}
	if _, err := h.written.Write(b.Bytes()); err != nil {
		h.t.Fatal(err)
	}
}

// run lets a rotator do its work for a time, the look at its end included.
func (h *house) run(d time.Duration) {
	h.t.Helper()
	ctx, stop := context.WithTimeout(h.t.Context(), d+time.Millisecond)
	defer stop()
	if err := h.rotator.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		h.t.Errorf("Run: %v", err)
	}
}

// text is what a reader gets of the log.
func (h *house) text() string {
	h.t.Helper()
	var b bytes.Buffer
	if err := logs.New(h.root, filewatch.New(filewatch.Every, logr.Discard()), logr.Discard()).Copy(h.t.Context(), &b, logs.Request{Log: numbered, Options: logs.Options{Tail: -1}}, nil); err != nil {
		h.t.Fatal(err)
	}
	return b.String()
}

func (h *house) expectLines(n int) {
	h.t.Helper()
	if got := strings.Count(h.text(), "\n"); got != n {
		h.t.Errorf("the log has %d lines, want %d; files: %v", got, n, names(h.t, h.path))
	}
}

func (h *house) expectFiles(patterns ...string) {
	h.t.Helper()
	got := names(h.t, h.path)
	ok := len(got) == len(patterns)
	for i := 0; ok && i < len(got); i++ {
		ok = regexp.MustCompile("^" + patterns[i] + "$").MatchString(got[i])
	}
	if !ok {
		h.t.Errorf("files are %v, want %v", got, patterns)
	}
}

const (
	stamp  = `0\.log\.\d{8}-\d{6}`
	packed = stamp + `\.gz`
)

func TestFilesAreThoseOfTheKubelet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		if err := os.Chown(h.path, 12, 34); err != nil {
			t.Fatal(err)
		}
		h.print(19)
		h.run(25 * time.Second)
		h.expectFiles(`0\.log`)
		h.print(1)
		h.run(interval)
		h.expectFiles(`0\.log`, stamp)
		h.print(20)
		h.run(interval)
		h.expectFiles(`0\.log`, packed, stamp)
		info, err := os.Stat(filepath.Join(filepath.Dir(h.path), names(t, h.path)[1]))
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t); owner.Uid != 12 || owner.Gid != 34 || info.Mode() != 0o640 {
			t.Errorf("the compressed file is of %d:%d with mode %v", owner.Uid, owner.Gid, info.Mode())
		}
		// The files were made now, whatever the time in this bubble.
		if age := time.Since(info.ModTime()).Abs(); age < time.Hour {
			t.Errorf("the compressed file's time isn't that of its last line but %v", info.ModTime())
		}
		h.expectLines(40)
		for range 5 {
			h.print(30)
			h.run(interval)
		}
		h.expectFiles(`0\.log`, packed, packed, stamp)
		h.expectLines(90)
		if len(h.messages) > 0 {
			t.Errorf("logged %v", h.messages)
		}
	})
}

func TestOneStatIsAllThatAnIdleContainerCosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.print(1)
		h.run(100 * interval)
		// Once, because nobody knows what an earlier agent left.
		if h.dirs > 2 || h.reopens > 0 {
			t.Errorf("opened the directory %d times, had the log reopened %d times", h.dirs, h.reopens)
		}
	})
}

func TestTwoRotationsInOneSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.rotator.SetLimits(Config{MaxSize: 1000, MaxFiles: 4, Workers: 1, Interval: 100 * time.Millisecond})
		for range 3 {
			h.print(20)
			h.run(time.Millisecond)
		}
		h.expectFiles(`0\.log`, packed, packed, stamp)
		h.expectLines(60)
	})
}

// What an agent before left a log with is brought in order.
func TestExcessIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		for _, name := range []string{"0.log.20200101-000000.gz", "0.log.20200101-000001", "0.log.20200101-000002", "0.log.20200101-000003", "0.log.20200101-000004.tmp", "1.log", "1.log.20200101-000000", "other"} {
			if err := os.WriteFile(filepath.Join(filepath.Dir(h.path), name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		h.run(time.Second)
		h.expectFiles(`0\.log`, `0\.log\.20200101-000001.gz`, `0\.log\.20200101-000002.gz`, `0\.log\.20200101-000003`, `1\.log`, `1\.log\.20200101-000000`, "other")
	})
}

func TestReopenFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.fail = errors.New("no such runtime")
		h.print(20)
		h.run(time.Second)
		h.expectFiles(`0\.log`)
		h.print(5)
		h.expectLines(25)
		if len(h.messages) > 0 {
			t.Errorf("logged after one failure, as of a container that has just ended: %v", h.messages)
		}
		h.run(10 * time.Minute)
		h.expectFiles(`0\.log`)
		if len(h.messages) != 1 || !strings.Contains(h.messages[0], "no such runtime") || !strings.Contains(h.messages[0], "default/web") {
			t.Errorf("logged %v, want that it fails, once", h.messages)
		}
		if h.reopens < 4 || h.reopens > 8 {
			t.Errorf("%d tries in 10 minutes, want a few, further and further apart", h.reopens)
		}
		h.fail = nil
		h.run(maxPause + interval)
		h.expectFiles(`0\.log`, stamp)
		h.expectLines(25)
	})
}

// A call that failed may have made the new file all the same, without writing to it.
func TestReopenFailsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.fail, h.failHaving = context.DeadlineExceeded, true
		h.print(20)
		h.run(time.Second)
		h.expectFiles(`0\.log`, stamp)
		h.print(5)
		h.fail = nil
		h.run(3 * interval)
		if h.reopens != 2 {
			t.Errorf("the runtime was asked %d times to reopen the log, want twice", h.reopens)
		}
		h.print(1)
		if b, err := os.ReadFile(h.path); err != nil || len(b) != 50 {
			t.Errorf("the new log isn't written: %q, %v", b, err)
		}
		h.expectLines(26)
	})
}

func TestLogOfAContainerThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.print(20)
		h.fail = errNotRunning
		h.run(time.Second)
		h.running.list = nil
		h.print(20)
		h.run(10 * interval)
		h.expectFiles(`0\.log`)
		if h.reopens != 1 || len(h.messages) > 0 {
			t.Errorf("reopened %d times, logged %v", h.reopens, h.messages)
		}
	})
}

func TestWhatIsStillWrittenToIsNotCompressed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.print(20)
		slow, err := os.OpenFile(h.path, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		h.run(time.Second)
		h.print(20)
		h.run(time.Second)
		h.expectFiles(`0\.log`, stamp, stamp)
		if _, err := slow.WriteString("2026-01-02T03:04:05Z stdout F late\n"); err != nil {
			t.Fatal(err)
		}
		slow.Close()
		h.run(interval + time.Second)
		h.expectFiles(`0\.log`, packed, stamp)
		h.expectLines(41)
	})
}

func TestDiskIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		real := h.rotator.open
		h.rotator.open = func(root, name string) (directory, error) {
			dir, err := real(root, name)
			return fullDisk{dir}, err
		}
		for range 5 {
			h.print(20)
			h.run(interval)
		}
		h.expectFiles(`0\.log`, stamp, stamp, stamp)
		h.expectLines(60)
		if len(h.messages) != 1 || !strings.Contains(h.messages[0], "No space") {
			t.Errorf("logged %v, want that the disk is full, once", h.messages)
		}
		h.rotator.open = real
		h.run(maxPause)
		h.expectFiles(`0\.log`, packed, packed, stamp)
		h.expectLines(60)
	})
}

type fullDisk struct{ directory }

func (d fullDisk) Create(n layout.Name) (*os.File, error) {
	f, err := d.directory.Create(n)
	if err != nil {
		return nil, err
	}
	f.Close()
	return os.OpenFile("/dev/full", os.O_WRONLY, 0)
}

// mortal is a directory for an agent that dies before its nth change to it: nothing it
// does afterwards has any effect.
type mortal struct {
	directory
	left *int
}

var errDied = errors.New("the agent is dead")

func (m mortal) dies() bool { *m.left--; return *m.left < 0 }

func (m mortal) Create(n layout.Name) (*os.File, error) {
	if m.dies() {
		return nil, errDied
	}
	return m.directory.Create(n)
}

func (m mortal) Rename(from, to layout.Name) error {
	if m.dies() {
		return errDied
	}
	return m.directory.Rename(from, to)
}

func (m mortal) Remove(n layout.Name) error {
	if m.dies() {
		return errDied
	}
	return m.directory.Remove(n)
}

func (m mortal) Sync() error {
	if m.dies() {
		return errDied
	}
	return m.directory.Sync()
}

// mortalRuntime is called by that agent.
type mortalRuntime struct {
	*house
	left *int
}

func (m mortalRuntime) ReopenContainerLog(ctx context.Context, id string) error {
	if *m.left--; *m.left < 0 {
		return errDied
	}
	return m.house.ReopenContainerLog(ctx, id)
}

// TestDeathBetweenAnyTwoSteps: wherever an agent dies, no line is lost to a reader, and
// the next agent brings the files in order.
func TestDeathBetweenAnyTwoSteps(t *testing.T) {
	for steps, died := 0, true; died; steps++ {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t)
			for range 2 {
				h.print(20)
				h.run(interval)
			}
			h.expectFiles(`0\.log`, packed, stamp)
			h.print(20)
			left := steps
			h.rotator.open = func(root, name string) (directory, error) {
				dir, err := layout.Open(root, name)
				return mortal{dir, &left}, err
			}
			h.rotator.runtime = mortalRuntime{h, &left}
			h.run(time.Second)
			died = left < 0
			h.print(1)
			h.expectLines(61)
			h.restart()
			h.messages = nil
			h.run(2 * interval)
			if written, err := os.Stat(h.path); err != nil || written.Size() > 1000 {
				t.Errorf("died after %d steps: the log isn't rotated: %v", steps, err)
			}
			h.print(1)
			h.expectLines(62)
			h.expectFiles(`0\.log`, packed, packed, stamp)
			if len(h.messages) > 0 {
				t.Errorf("died after %d steps: logged %v", steps, h.messages)
			}
			if t.Failed() {
				t.Logf("died after %d steps", steps)
				died = false
			}
		})
	}
}

// A pod that mounts the directory can put anything there.
func TestLinksAreNotFollowed(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "1.log")
	big := bytes.Repeat([]byte("s"), 5000)
	if err := os.WriteFile(secret, big, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, prepare := range map[string]func(h *house) error{
		"in the log's place": func(h *house) error {
			return errors.Join(os.Remove(h.path), os.Symlink(secret, h.path))
		},
		"in the directory's place": func(h *house) error {
			dir := filepath.Dir(h.path)
			return errors.Join(os.RemoveAll(dir), os.Symlink(filepath.Dir(secret), dir))
		},
		"among what was rotated": func(h *house) error {
			dir := filepath.Dir(h.path)
			return errors.Join(os.Symlink(secret, filepath.Join(dir, "0.log.20200101-000000")), os.Symlink(secret, filepath.Join(dir, "0.log.20200101-000001")))
		},
		"a directory among it": func(h *house) error {
			return os.MkdirAll(filepath.Join(filepath.Dir(h.path), "0.log.20200101-000000", "x"), 0o700)
		},
		"a path that leads out": func(h *house) error {
			h.running.list[0].Path = secret
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t)
				h.print(20)
				if err := prepare(h); err != nil {
					t.Fatal(err)
				}
				h.run(10 * interval)
				if b, err := os.ReadFile(secret); err != nil || !bytes.Equal(b, big) {
					t.Errorf("the file was changed: %v", err)
				}
				if entries, err := os.ReadDir(filepath.Dir(secret)); err != nil || len(entries) != 1 {
					t.Errorf("its directory was changed: %v, %v", entries, err)
				}
				if strings.Contains(name, "among") != (h.reopens > 0) {
					t.Errorf("the log was rotated %d times", h.reopens)
				}
			})
		})
	}
}

// slowRuntime notes what is done at once.
type slowRuntime struct {
	mu        sync.Mutex
	now, most int
	calls     int
	by        map[string]int
	twice     bool
}

// seen returns what there is at once now, and the most since it was last asked.
func (s *slowRuntime) seen() (now, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now, most = s.now, s.most
	s.most = 0
	return now, most
}

func (s *slowRuntime) ReopenContainerLog(_ context.Context, id string) error {
	s.mu.Lock()
	s.now++
	s.calls++
	s.by[id]++
	s.most, s.twice = max(s.most, s.now), s.twice || s.by[id] > 1
	s.mu.Unlock()
	time.Sleep(3 * interval)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	s.by[id]--
	return errNotRunning
}

// fiveLogs makes a rotator of five logs that are too large.
func fiveLogs(t *testing.T, workers int) (*Rotator, *slowRuntime) {
	root := t.TempDir()
	running := &containers{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		path := filepath.Join(root, "default_web_u1", name, "0.log")
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, make([]byte, 2000), 0o600)); err != nil {
			t.Fatal(err)
		}
		running.list = append(running.list, Container{ID: name, Path: path})
	}
	runtime := &slowRuntime{by: map[string]int{}}
	return New(Config{Root: root, MaxSize: 1000, MaxFiles: 5, Interval: interval, Workers: workers}, running, runtime, noWrites{}, logr.Discard()), runtime
}

func TestWorkersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, runtime := fiveLogs(t, 3)
		ctx, stop := context.WithTimeout(t.Context(), time.Hour)
		defer stop()
		if err := r.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if runtime.most != 3 || runtime.twice {
			t.Errorf("%d workers at once, two on one container: %v", runtime.most, runtime.twice)
		}
	})
}

func TestRotationCanBeTurnedOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.rotator.SetLimits(Config{MaxSize: -1, MaxFiles: 4, Workers: 1, Interval: interval})
		h.print(100)
		h.run(time.Hour)
		h.expectFiles(`0\.log`)
	})
}

func TestAMissingLogIsMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.run(time.Second)
		if err := os.Remove(h.path); err != nil {
			t.Fatal(err)
		}
		h.run(time.Second)
		h.print(1)
		h.expectLines(1)
		if _, err := os.Stat(h.path); errors.Is(err, fs.ErrNotExist) || !slices.Equal(names(t, h.path), []string{"0.log"}) {
			t.Error("the log wasn't made anew")
		}
	})
}

// A runtime that makes no log, whatever it is told, isn't told so at every look.
func TestAMissingLogThatIsNeverMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		h.deaf = true
		if err := os.Remove(h.path); err != nil {
			t.Fatal(err)
		}
		h.run(time.Minute)
		if h.reopens != 3 {
			t.Errorf("asked for a new log %d times in a minute, want 3: now, after 10 s, and after 20 s more", h.reopens)
		}
	})
}

// A container that writes fast is looked at as often as it has to be, and doesn't fill the disk between two looks.
func TestAFloodStaysWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		start(t, h.rotator)
		const maxSize, maxFiles = 1000, 4
		most := int64(0)
		for range 10 * interval / (100 * time.Millisecond) {
			h.print(7) // 3.5 times maxSize each second
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
			all := int64(0)
			for _, name := range names(t, h.path) {
				info, err := os.Stat(filepath.Join(filepath.Dir(h.path), name))
				if err != nil {
					t.Fatal(err)
				}
				all += info.Size()
			}
			most = max(most, all)
		}
		if most > 2*maxSize*maxFiles {
			t.Errorf("the logs took %d bytes at a time, want at most twice %d files of %d", most, maxFiles, maxSize)
		}
	})
}

// Logs that grow while files are compressed, which may take longer than it takes to write them, are rotated all the same:
// that container's own, and another's with the same worker.
func TestCompressionHoldsUpNoRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t)
		other := filepath.Join(filepath.Dir(filepath.Dir(h.path)), "other", "0.log")
		write := func(size int) {
			t.Helper()
			if err := errors.Join(os.MkdirAll(filepath.Dir(other), 0o700), os.WriteFile(other, make([]byte, size), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		write(0)
		h.rotator.runtime = remakes{h, other}
		h.running.list = append(h.running.list, Container{ID: "c2", Path: other})
		var left []int64
		floods := 4 // one at each begin and end of a compression
		real := h.rotator.open
		h.rotator.open = func(root, name string) (directory, error) {
			dir, err := real(root, name)
			return slowCompression{dir,
				func() {
					if floods--; floods >= 0 {
						h.print(30)
						write(1500)
						time.Sleep(3 * longest)
					}
				},
				func() {
					for _, path := range []string{h.path, other} {
						if info, err := os.Stat(path); err == nil {
							left = append(left, info.Size())
						}
					}
				}}, err
		}
		start(t, h.rotator)
		for range 2 {
			h.print(30)
			time.Sleep(longest)
			synctest.Wait()
		}
		time.Sleep(10 * interval)
		synctest.Wait()
		if len(left) == 0 || floods > 0 || slices.ContainsFunc(left, func(size int64) bool { return size >= 1000 }) {
			t.Errorf("when a file was compressed, the logs had %d bytes, want them rotated at 1000", left)
		}
	})
}

// remakes makes the log of the container c2, too.
type remakes struct {
	*house
	other string
}

func (r remakes) ReopenContainerLog(ctx context.Context, id string) error {
	if id == "c2" {
		return remake{r.other}.ReopenContainerLog(ctx, id)
	}
	return r.house.ReopenContainerLog(ctx, id)
}

// slowCompression says when the compression of a file begins, and when it has ended.
type slowCompression struct {
	directory
	begin, end func()
}

func (d slowCompression) Create(n layout.Name) (*os.File, error) {
	d.begin()
	return d.directory.Create(n)
}

func (d slowCompression) Sync() error {
	d.begin()
	d.end()
	return d.directory.Sync()
}
