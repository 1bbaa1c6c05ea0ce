package logging

import (
	"flag"
	"fmt"
	"strconv"

	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/klog/v2"
)

// libraries sets the verbosity of the Kubernetes libraries, which log through klog's global logger. klog has its own
// thresholds, which it applies before it passes a message to our logger; they can be set only through flags.
type libraries struct{ flags flag.FlagSet }

// RedirectLibraries makes the Kubernetes libraries, which log through klog's global logger, log to l, with the
// agent's verbosity. It has to be called once, from main, before any other goroutine logs.
func (l *Log) RedirectLibraries() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	libs := &libraries{}
	klog.InitFlags(&libs.flags)
	if err := libs.set(l.now); err != nil {
		return err
	}
	l.libraries = libs
	options := []klog.LoggerOption{klog.ContextualLogger(true), klog.FlushLogger(l.Flush)}
	if l.format == logsapi.DefaultLogFormat {
		// Unstructured messages are already in klog's format, with their severity.
		to := plain{l.streams.router()}
		options = append(options, klog.WriteKlogBuffer(func(line []byte) { _, _ = to.Write(line) }))
	}
	klog.SetLoggerWithOptions(l.logger, options...)
	return nil
}

// set changes klog's thresholds. klog may drop messages until it returns.
func (l *libraries) set(t threshold) error {
	for name, value := range map[string]string{"v": strconv.FormatUint(uint64(t.verbosity), 10), "vmodule": t.vmodule} {
		if err := l.flags.Set(name, value); err != nil {
			return fmt.Errorf("the libraries' log %s can't be set to %q: %w", name, value, err)
		}
	}
	return nil
}
