package rotate

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"
)

// criLog writes a container's log as containerd's CRI does: what the container prints
// is copied in chunks to a logger per stream, which cuts it into entries in a goroutine of its own.
// Reopening swaps the loggers between two chunks. Then the old ones are told to
// end, and nobody waits for them: what they have buffered they write to the old file after
// the call has returned, a begun line as a partial entry; its end comes in the new file.
type criLog struct {
	path string
	// stall, if not nil, runs before an old logger writes its last entries.
	stall func()

	mu      sync.Mutex
	out     map[string]*io.PipeWriter
	closed  bool
	reopens int
	writers sync.WaitGroup
}

var errNotRunning = errors.New("container is not running")

func newCRILog(path string) *criLog { return &criLog{path: path} }

// ReopenContainerLog implements Runtime.
func (l *criLog) ReopenContainerLog(context.Context, string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return errNotRunning
	}
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return err
	}
	var loggers sync.WaitGroup
	var fileMu sync.Mutex
	old := l.out
	l.out = map[string]*io.PipeWriter{}
	for _, stream := range []string{"stdout", "stderr"} {
		r, w := io.Pipe()
		l.out[stream] = w
		loggers.Go(func() { l.redirect(stream, r, &fileMu, file) })
	}
	l.writers.Go(func() { loggers.Wait(); file.Close() })
	for _, w := range old {
		w.Close()
	}
	l.reopens++
	return nil
}

// print is what the container writes to a stream.
func (l *criLog) print(stream string, chunk []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.out[stream].Write(chunk)
}

// end ends the container, and waits until all is written.
func (l *criLog) end() {
	l.mu.Lock()
	l.closed = true
	for _, w := range l.out {
		w.Close()
	}
	l.out = nil
	l.mu.Unlock()
	l.writers.Wait()
}

func (l *criLog) redirect(stream string, r io.Reader, mu *sync.Mutex, file io.Writer) {
	in := bufio.NewReaderSize(r, 4096)
	for {
		text, err := in.ReadBytes('\n')
		if err != nil && l.stall != nil {
			l.stall()
		}
		if len(text) == 0 {
			return
		}
		tag := "F"
		if err != nil {
			tag, text = "P", append(text, '\n')
		}
		mu.Lock()
		_, _ = fmt.Fprintf(file, "%s %s %s %s", time.Now().Format(time.RFC3339Nano), stream, tag, text)
		mu.Unlock()
		if err != nil {
			return
		}
	}
}

// printNumbers prints numbered lines at full speed, in chunks that end anywhere.
func (l *criLog) printNumbers(stream string, n int) {
	var chunk []byte
	for i := range n {
		chunk = fmt.Appendf(chunk, "%s line %d of the numbered ones\n", stream, i)
		if len(chunk) > 9000 {
			l.print(stream, chunk[:9000])
			chunk = append(chunk[:0], chunk[9000:]...)
			runtime.Gosched()
		}
	}
	l.print(stream, chunk)
}
