package foreground

import (
	"bytes"
	"io"
	"sync"
)

// lineWriter passes on whole lines, each behind a prefix, so that several writers
// that share w and mu don't mix theirs up.
type lineWriter struct {
	mu     *sync.Mutex
	w      io.Writer
	prefix string
	// rest is the begin of a line.
	rest []byte
}

// maxLine is how much of a line is gathered before it is passed on in pieces.
const maxLine = 64 << 10

func (l *lineWriter) Write(b []byte) (int, error) {
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

// flush ends a line that has no end.
func (l *lineWriter) flush() error {
	if len(l.rest) == 0 {
		return nil
	}
	_, err := l.Write([]byte{'\n'})
	return err
}

func (l *lineWriter) pass(out []byte) error {
	if len(out) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err := l.w.Write(out)
	return err
}
