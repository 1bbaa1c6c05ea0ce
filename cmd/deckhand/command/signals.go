package command

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// deliberate is how long further signals are ignored after the first one: a service manager, a terminal and a wrapper
// script may each send a signal for the same stop.
const deliberate = time.Second

// AwaitSignals calls the function stop at the first signal, which requests a graceful stop, and returns at a later one,
// which requests an immediate end.
func AwaitSignals(signals <-chan os.Signal, stop func()) {
	<-signals
	first := time.Now()
	stop()
	for range signals {
		if time.Since(first) >= deliberate {
			return
		}
	}
}

// outliveReaders keeps the process running when the reader of its output exits. Go ends a program that writes to a
// broken pipe as its standard output or error (os/signal, "SIGPIPE"), but a restart of a log collector must not end
// the agent. Unlike an ignored signal, a handled one isn't inherited by child processes.
func outliveReaders() (end func()) {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	return func() { signal.Stop(broken) }
}

// untilHangUp returns a context that also ends when the terminal hangs up, unless the program was started with nohup.
func untilHangUp(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}
