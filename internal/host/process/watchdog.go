package process

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/logging"
)

// retries is the number of times that a failing check is repeated before the next notification is due: a check that is
// repeated only then would be too late.
const retries = 5

// Watchdog sends watchdog notifications until ctx ends, as long as healthy returns nil. The time between two of
// them is half the watchdog's timeout. Without notifications the service manager kills and restarts the agent, so
// healthy should fail only if a restart could help. While healthy fails, Watchdog calls it every tenth of the
// timeout, and logs its error whenever the text changes. The context of healthy ends when the next notification is
// due; healthy has to return then.
//
// If the watchdog is disabled, Watchdog only waits for the end of ctx. It always returns nil.
//
// See https://kubernetes.io/docs/reference/node/systemd-watchdog and sd_watchdog_enabled(3).
func (n *Notifier) Watchdog(ctx context.Context, healthy func(context.Context) error, log logr.Logger) error {
	if n.watchdog == 0 {
		<-ctx.Done()
		return nil
	}
	w := watch{notifier: n, healthy: healthy, log: log, ping: n.watchdog / 2}
	timer := time.NewTimer(w.notify(ctx))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			timer.Reset(w.notify(ctx))
		}
	}
}

// watch is the state of Watchdog.
type watch struct {
	notifier *Notifier
	healthy  func(context.Context) error
	log      logr.Logger
	// ping is the time between two watchdog notifications.
	ping time.Duration
	last logging.LastError
}

// notify sends a watchdog notification if the check succeeds, and returns the time until the next check.
func (w *watch) notify(ctx context.Context) time.Duration {
	begin := time.Now()
	err := w.check(ctx)
	if err == nil {
		err = w.notifier.send("WATCHDOG=1")
	}
	if ctx.Err() != nil {
		return w.ping // the end of ctx caused the error
	}
	w.logChange(err)
	if err != nil {
		return w.ping / retries
	}
	// The duration of the check is subtracted, so that a slow check doesn't delay the next notification.
	return max(0, w.ping-time.Since(begin))
}

func (w *watch) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.ping)
	defer cancel()
	return w.healthy(ctx)
}

// logChange logs err if its text differs from that of the previous error, and logs when the check succeeds again.
func (w *watch) logChange(err error) {
	if err != nil {
		w.last.Log(w.log, err, "Doesn't notify the service manager's watchdog, which will restart the agent soon",
			"timeout", w.notifier.watchdog)
	} else if w.last.Clear() {
		w.log.Info("Notifies the service manager's watchdog again")
	}
}
