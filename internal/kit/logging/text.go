package logging

import (
	"io"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2/textlogger"
)

// newText makes a logger in klog's format.
func newText(w io.Writer) (logr.Logger, level) {
	l := &textLevel{}
	writer := textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(plain{w})))
	return logr.New(&textSink{level: l, LogSink: writer.WithCallDepth(1).GetSink()}), l
}

// textLevel is the threshold of a text logger and of all loggers derived from it.
//
// textlogger's own threshold is changed in two steps, and between them no message is logged. Therefore a textThreshold
// is never changed; it is replaced as a whole.
type textLevel struct{ now atomic.Pointer[textThreshold] }

type textThreshold struct {
	verbosity int
	// files applies the verbosities of files; nil if there are none.
	files logr.LogSink
}

func (l *textLevel) set(t threshold) {
	next := &textThreshold{verbosity: int(t.verbosity)}
	if t.vmodule != "" {
		c := textlogger.NewConfig()
		_ = c.VModule().Set(t.vmodule) // it was checked
		next.files = textlogger.NewLogger(c).WithCallDepth(1).GetSink()
	}
	l.now.Store(next)
}

// textSink writes the messages that its level allows, with textlogger.
type textSink struct {
	// LogSink writes every line, and records its caller's caller as the line's source.
	logr.LogSink
	level *textLevel
	// depth is the number of additional callers between this sink and the source of a line.
	depth int
}

// Init does nothing: textlogger has already configured its sinks in the same way.
func (s *textSink) Init(logr.RuntimeInfo) {}

// Enabled is called for every line, even if the line isn't logged.
func (s *textSink) Enabled(level int) bool {
	t := s.level.now.Load()
	if level <= t.verbosity {
		return true
	}
	if t.files == nil {
		return false
	}
	files := t.files
	if s.depth > 0 {
		files = deeper(files, s.depth)
	}
	return files.Enabled(level)
}

func (s *textSink) Info(level int, msg string, kv ...any) {
	s.LogSink.Info(level, msg, oneLine(kv)...)
}

func (s *textSink) Error(err error, msg string, kv ...any) {
	s.LogSink.Error(err, msg, oneLine(kv)...)
}

func (s *textSink) WithValues(kv ...any) logr.LogSink {
	return &textSink{s.LogSink.WithValues(oneLine(kv)...), s.level, s.depth}
}

func (s *textSink) WithName(name string) logr.LogSink {
	return &textSink{s.LogSink.WithName(name), s.level, s.depth}
}

func (s *textSink) WithCallDepth(depth int) logr.LogSink {
	return &textSink{deeper(s.LogSink, depth), s.level, s.depth + depth}
}

// deeper returns a sink that skips this number of additional callers to find the source of a line.
func deeper(s logr.LogSink, callers int) logr.LogSink {
	if d, ok := s.(logr.CallDepthLogSink); ok {
		return d.WithCallDepth(callers)
	}
	return s
}
