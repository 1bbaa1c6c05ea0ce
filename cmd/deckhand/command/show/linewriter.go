package show

import (
	"bytes"
	"io"
	"sync"
)

// Lines lets several writers share one without mixing their lines.
type Lines struct {
	mu sync.Mutex
	w  io.Writer
}

// NewLines returns Lines that share w.
func NewLines(w io.Writer) *Lines { return &Lines{w: w} }

// Behind returns a writer that forwards complete lines, each with a prefix. It isn't safe for concurrent use.
func (l *Lines) Behind(prefix string) *LineWriter { return &LineWriter{to: l, prefix: prefix} }

// LineWriter is one of the writers that share Lines.
type LineWriter struct {
	to     *Lines
	prefix string
	// rest is the buffered beginning of a line that isn't complete yet.
	rest []byte
}

// maxLine is the maximum number of bytes of a line that are buffered. A longer line is forwarded in pieces.
const maxLine = 64 << 10

// Write forwards the lines that end in b, and buffers the rest.
func (l *LineWriter) Write(b []byte) (int, error) {
	l.rest = append(l.rest, b...)
	var out []byte
	for {
		line, rest, ok := bytes.Cut(l.rest, []byte{'\n'})
		if !ok {
			break
		}
		out = append(append(append(out, l.prefix...), line...), '\n')
		l.rest = rest
	}
	if len(l.rest) > maxLine {
		out = append(append(append(out, l.prefix...), l.rest...), '\n')
		l.rest = nil
	}
	l.rest = append([]byte(nil), l.rest...)
	return len(b), l.pass(out)
}

// Flush completes an incomplete line.
func (l *LineWriter) Flush() error {
	if len(l.rest) == 0 {
		return nil
	}
	_, err := l.Write([]byte{'\n'})
	return err
}

func (l *LineWriter) pass(out []byte) error {
	if len(out) == 0 {
		return nil
	}
	l.to.mu.Lock()
	defer l.to.mu.Unlock()
	_, err := l.to.w.Write(out)
	return err
}
