// Package logging makes the agent's logger: klog's text format, or JSON lines
// in the shape Kubernetes components write.
package logging

import (
	"flag"
	"fmt"
	"io"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	logsapi "k8s.io/component-base/logs/api/v1"
	logsjson "k8s.io/component-base/logs/json"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"
)

// New returns a logger that writes to w what has at most the given verbosity,
// as "text" (klog's format) or as "json" (one object a line with ts in
// milliseconds, caller, msg, and v or err). The logger may be used by many
// goroutines; w is used by one at a time. flush has to be called before the
// process ends.
func New(format string, verbosity uint32, w io.Writer) (logger logr.Logger, flush func(), err error) {
	out := &lockedWriter{w: w}
	switch format {
	case logsapi.DefaultLogFormat:
		c := textlogger.NewConfig(textlogger.Output(out), textlogger.Verbosity(int(verbosity)))
		return textlogger.NewLogger(c), func() {}, nil
	case logsapi.JSONLogFormat:
		log, control := logsjson.NewJSONLogger(logsapi.VerbosityLevel(verbosity), logsjson.AddNopSync(out), nil, nil)
		return log, control.Flush, nil
	default:
		return logr.Logger{}, nil, fmt.Errorf("log format %q is not known: it must be %s or %s", format, logsapi.DefaultLogFormat, logsapi.JSONLogFormat)
	}
}

// lockedWriter lets one goroutine write at a time, so that lines stay whole.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// RedirectLibraries makes the Kubernetes libraries, which log through klog's
// global logger, log to logger with the given verbosity. It is to be called
// once, from main, before any other goroutine logs.
func RedirectLibraries(logger logr.Logger, verbosity uint32) error {
	// klog decides by its own verbosity what reaches the logger, and lets it be
	// set through flags only.
	var fs flag.FlagSet
	klog.InitFlags(&fs)
	if err := fs.Set("v", strconv.FormatUint(uint64(verbosity), 10)); err != nil {
		return fmt.Errorf("setting the libraries' log verbosity to %d: %w", verbosity, err)
	}
	klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
	return nil
}
