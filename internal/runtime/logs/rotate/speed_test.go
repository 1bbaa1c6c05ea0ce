package rotate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/runtime/logs"
)

// checker demands numbered lines, each once and in order, from each stream.
type checker struct {
	name string
	want []string
	seen map[string]int
	buf  []byte
	err  error
}

func newChecker(name string, streams ...string) *checker {
	return &checker{name: name, want: streams, seen: map[string]int{}}
}

func (c *checker) Write(b []byte) (int, error) {
	c.buf = append(c.buf, b...)
	in := bufio.NewReader(strings.NewReader(string(c.buf)))
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			c.buf = []byte(line)
			return len(b), nil
		}
		stream, _, _ := strings.Cut(line, " ")
		if want := fmt.Sprintf("%s line %d of the numbered ones\n", stream, c.seen[stream]); line != want {
			c.err = fmt.Errorf("%s: got %q, want %q", c.name, line, want)
			return 0, c.err
		}
		c.seen[stream]++
	}
}

func (c *checker) check(t *testing.T, n int) {
	t.Helper()
	if c.err != nil {
		t.Error(c.err)
		return
	}
	for _, stream := range c.want {
		if c.seen[stream] != n {
			t.Errorf("%s: %d lines of %s, want %d", c.name, c.seen[stream], stream, n)
		}
	}
	if len(c.buf) > 0 || len(c.seen) != len(c.want) {
		t.Errorf("%s: unexpected text %q, lines %v", c.name, c.buf, c.seen)
	}
}

// life is a container whose instance 0 ends at some time.
type life struct {
	mu      sync.Mutex
	over    bool
	changed chan struct{}
}

func (l *life) Current() logs.Instance {
	l.mu.Lock()
	defer l.mu.Unlock()
	return logs.Instance{Ended: l.over, Final: l.over}
}

func (l *life) Changed() <-chan struct{} { return l.changed }

func (l *life) end() {
	l.mu.Lock()
	l.over = true
	l.mu.Unlock()
	close(l.changed)
}

var numbered = logs.Log{Namespace: "default", Pod: "web", UID: "u1", Container: "web"}

// logPath makes the directory of the log of instance 0 of that container.
func logPath(t testing.TB) (root, path string) {
	t.Helper()
	root = t.TempDir()
	path = filepath.Join(root, "default_web_u1", "web", "0.log")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	return root, path
}

// TestNumberedLinesAtFullSpeed: two streams print as fast as they can while their log is rotated
// as fast as it can be. Who follows, and who reads at any time, gets each line once.
func TestNumberedLinesAtFullSpeed(t *testing.T) {
	const lines = 60_000
	root, path := logPath(t)
	written := newCRILog(path)
	if err := written.ReopenContainerLog(t.Context(), "c1"); err != nil {
		t.Fatal(err)
	}
	running := &containers{list: []Container{{ID: "c1", Pod: "default/web", Name: "web", Path: path}}}
	rotator := New(Config{Root: root, MaxSize: 64 << 10, MaxFiles: 200, Interval: time.Millisecond, Workers: 1}, running, written, noWrites{}, logr.Discard())
	ctx, stop := context.WithCancel(t.Context())
	var rotating, following, reading sync.WaitGroup
	rotating.Go(func() {
		if err := rotator.Run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("Run: %v", err)
		}
	})

	reader := logs.New(root, filewatch.New(filewatch.Every, logr.Discard()), logr.Discard())
	streams := []string{"stdout", "stderr"}
	followers := []*checker{newChecker("follow both", streams...), newChecker("follow stdout", "stdout"), newChecker("follow stderr", "stderr")}
	var lives []*life
	for i, c := range followers {
		l := &life{changed: make(chan struct{})}
		lives = append(lives, l)
		options := logs.Options{Follow: true, Tail: -1, Stream: []logs.Stream{logs.Both, logs.Stdout, logs.Stderr}[i]}
		following.Go(func() {
			if err := reader.Copy(t.Context(), c, logs.Request{Log: numbered, Options: options}, l); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		})
	}
	done := make(chan struct{})
	var reads int
	reading.Go(func() {
		for ; ; reads++ {
			select {
			case <-done:
				return
			default:
			}
			// What is there in the midst of it begins with the first line and has no gap.
			if err := reader.Copy(t.Context(), newChecker("read meanwhile", streams...), logs.Request{Log: numbered, Options: logs.Options{Tail: -1}}, nil); err != nil {
				t.Errorf("read meanwhile: %v", err)
			}
		}
	})

	var printing sync.WaitGroup
	for _, stream := range streams {
		printing.Go(func() { written.printNumbers(stream, lines) })
	}
	printing.Wait()
	written.end()
	close(done)
	reading.Wait()
	for _, l := range lives {
		l.end()
	}
	following.Wait()
	stop()
	rotating.Wait()
	for _, c := range followers {
		c.check(t, lines)
	}
	last := newChecker("read afterwards", streams...)
	if err := reader.Copy(t.Context(), last, logs.Request{Log: numbered, Options: logs.Options{Tail: -1}}, nil); err != nil {
		t.Fatal(err)
	}
	last.check(t, lines)
	if n := written.reopens; n < 10 {
		t.Errorf("the log was rotated only %d times", n)
	}
	t.Logf("%d rotations, %d reads meanwhile; %v", written.reopens-1, reads, names(t, path)[:3])
}

type containers struct {
	mu     sync.Mutex
	list   []Container
	looked int
}

func (c *containers) Running() []Container {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looked++
	return c.list
}

// looks is how often somebody asked.
func (c *containers) looks() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.looked
}

// names lists the files in the log's directory.
func names(t testing.TB, path string) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
