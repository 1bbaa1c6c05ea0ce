// Package logging makes the agent's logger: klog's text format, or JSON lines in the format of Kubernetes'
// components. Its verbosity can be changed while it runs.
package logging

import (
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/go-logr/logr"
	logsapi "k8s.io/component-base/logs/api/v1"
	logsjson "k8s.io/component-base/logs/json"
)

// Config configures a Log: logsapi.LoggingConfiguration in plain values.
type Config struct {
	// Format is "text" (klog's format) or "json" (one object a line with ts in
	// milliseconds, caller, msg, and v or err).
	Format string
	// Verbosity is the threshold: messages of a higher level aren't logged. Errors always are.
	Verbosity uint32
	// VModule gives files a higher threshold, as "pattern=N,...": see CheckVModule.
	// It has to be empty for JSON.
	VModule string
	// SplitStream writes info messages to Out. Errors (and with text, the libraries' warnings) go to Err. Without
	// SplitStream all messages go to Err.
	SplitStream bool
	// InfoBufferSize is how many bytes for Out are buffered before they are written together; 0 or less for no buffer.
	InfoBufferSize int64
	// FlushFrequency is how long a line is buffered at most; it has to be positive if lines are buffered.
	FlushFrequency time.Duration
	// Out and Err are used by one goroutine at a time, even if they are the same writer. Out may be nil without
	// SplitStream.
	Out, Err io.Writer
}

// ConfigOf converts the API type, for a Log that writes to out and err. Only the options of the selected format count.
func ConfigOf(c *logsapi.LoggingConfiguration, out, err io.Writer) Config {
	routing := c.Options.Text.OutputRoutingOptions
	if c.Format == logsapi.JSONLogFormat {
		routing = c.Options.JSON.OutputRoutingOptions
	}
	return Config{
		Format: c.Format, Verbosity: uint32(c.Verbosity), VModule: VModuleText(c.VModule),
		SplitStream: routing.SplitStream, InfoBufferSize: routing.InfoBufferSize.Value(),
		FlushFrequency: c.FlushFrequency.Duration.Duration,
		Out:            out, Err: err,
	}
}

// Log is the log of the agent and of the libraries that it uses. Its methods may be called concurrently.
type Log struct {
	logger  logr.Logger
	streams streams
	format  string
	// level sets the threshold of logger; its type depends on the format.
	level level

	// mu is held while the threshold is changed, including the change of the libraries' thresholds.
	mu        sync.Mutex
	libraries *libraries // nil until they are redirected
	now       threshold
}

// level sets the threshold of a logger.
type level interface {
	// set changes the threshold atomically. The caller has validated the new one.
	set(threshold)
}

// threshold determines which messages are logged.
type threshold struct {
	verbosity uint32
	vmodule   string
}

// Open makes a Log. After Close it still writes lines, but doesn't buffer them.
func Open(c Config) (*Log, error) {
	if c.SplitStream && c.InfoBufferSize > 0 && c.FlushFrequency <= 0 {
		return nil, fmt.Errorf("log flush frequency %s is not possible: it must be more than 0 while lines are held "+
			"back", c.FlushFrequency)
	}
	l := &Log{streams: newStreams(c), format: c.Format, now: threshold{c.Verbosity, c.VModule}}
	switch c.Format {
	case logsapi.DefaultLogFormat:
		l.logger, l.level = newText(l.streams.router())
	case logsapi.JSONLogFormat:
		l.logger, l.level = newJSON(l.streams)
	default:
		return nil, fmt.Errorf("log format %q is not known: it must be %s or %s", c.Format, logsapi.DefaultLogFormat,
			logsapi.JSONLogFormat)
	}
	if err := l.check(l.now); err != nil {
		return nil, err
	}
	l.level.set(l.now)
	return l, nil
}

// Logger returns the logger.
func (l *Log) Logger() logr.Logger { return l.logger }

// SetVerbosity changes how much is logged from now on, by all loggers that were derived from Logger, and by the
// libraries once they were redirected. After an error nothing has changed. A line that both the old and the new
// threshold allow isn't lost, with one exception: klog may drop a library's line that is logged during the change.
func (l *Log) SetVerbosity(verbosity uint32, vmodule string) error {
	next := threshold{verbosity, vmodule}
	if err := l.check(next); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if next == l.now {
		return nil
	}
	if l.libraries != nil {
		if err := l.libraries.set(next); err != nil {
			return err
		}
	}
	l.level.set(next)
	l.now = next
	return nil
}

func (l *Log) check(t threshold) error {
	if t.verbosity > math.MaxInt32 {
		return fmt.Errorf("log verbosity %d is too high: it must be at most %d", t.verbosity, math.MaxInt32)
	}
	if t.vmodule != "" && l.format != logsapi.DefaultLogFormat {
		return fmt.Errorf("vmodule %q can't be used: only the log format %s has verbosities by file", t.vmodule,
			logsapi.DefaultLogFormat)
	}
	return CheckVModule(t.vmodule)
}

// Flush writes the buffered lines.
func (l *Log) Flush() { l.streams.flush() }

// Close writes the buffered lines. Later lines aren't buffered.
func (l *Log) Close() { l.streams.close() }

// jsonLevel is the threshold of a JSON logger.
type jsonLevel struct{ control logsapi.RuntimeControl }

// maxJSON is the highest verbosity that zap supports. zapr logs messages of a higher verbosity with this one.
const maxJSON = math.MaxInt8

func newJSON(s streams) (logr.Logger, level) {
	errs := logsjson.AddNopSync(s.err)
	if s.out == nil {
		logger, control := logsjson.NewJSONLogger(0, errs, nil, nil)
		return logger, jsonLevel{control}
	}
	logger, control := logsjson.NewJSONLogger(0, logsjson.AddNopSync(s.out), errs, nil)
	return logger, jsonLevel{control}
}

func (j jsonLevel) set(t threshold) {
	_ = j.control.SetVerbosityLevel(min(t.verbosity, maxJSON)) // it never fails
}
