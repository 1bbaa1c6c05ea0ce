package command

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// deliberate is how long after a first signal a second one counts as another wish: a service manager, a terminal and a
// wrapping script may each send one for the same stop.
const deliberate = time.Second

// AwaitSignals calls stop at the first signal, which asks for an orderly stop, and returns at a later one, which
// insists on an end at once.
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

// outliveReaders has the process go on when nobody reads what it writes any more. Go ends
// a program that writes to a broken pipe as its standard output or error (os/signal,
// "SIGPIPE"); but a node mustn't go without its agent because a collector of logs restarts.
// Unlike an ignored signal, one that is taken isn't passed on to children.
func outliveReaders() (end func()) {
	broken := make(chan os.Signal, 1)
	signal.Notify(broken, syscall.SIGPIPE)
	return func() { signal.Stop(broken) }
}

// untilHangUp is a context that also ends when the terminal goes away, unless whoever
// started the program wants it to outlive that (nohup).
func untilHangUp(ctx context.Context) (context.Context, context.CancelFunc) {
	if signal.Ignored(syscall.SIGHUP) {
		return context.WithCancel(ctx)
	}
	return signal.NotifyContext(ctx, syscall.SIGHUP)
}
