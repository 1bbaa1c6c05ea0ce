package process

import (
	"context"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/logging"
)

// retries is how many times a check is tried again within the time of one ping,
// while it fails: with the next ping it would be too late.
const retries = 5

// WatchdogPeriod is within what time the service manager wants watchdog notifications;
// 0 if it doesn't.
func (n *Notifier) WatchdogPeriod() time.Duration { return n.watchdog }

// Watchdog gives watchdog notifications until ctx ends: one in half the time that the
// service manager allows, as long as healthy returns nil. Without them the service
// manager kills and restarts this program; so healthy should fail only if a restart
// could help. While it fails it is called every tenth of that time, and why it fails
// is logged whenever the error's text changes. Its context ends when it has taken
// until the next sign is due; it has to return then.
//
// Where no signs are wanted, Watchdog only waits for ctx. It returns nil.
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

// watch is Watchdog's state between two checks.
type watch struct {
	notifier *Notifier
	healthy  func(context.Context) error
	log      logr.Logger
	// ping is the time between two watchdog notifications.
	ping time.Duration
	last logging.LastError
}

// notify gives a watchdog notification if all is well, and returns when to look again.
func (w *watch) notify(ctx context.Context) time.Duration {
	begin := time.Now()
	err := w.check(ctx)
	if err == nil {
		err = w.notifier.send("WATCHDOG=1")
	}
	if ctx.Err() != nil {
		return w.ping // a check that was broken off says nothing
	}
	w.logChange(err)
	if err != nil {
		return w.ping / retries
	}
	// A check that takes long must not make the next sign late.
	return max(0, w.ping-time.Since(begin))
}

func (w *watch) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.ping)
	defer cancel()
	return w.healthy(ctx)
}

// logChange logs err if it is another one than before.
func (w *watch) logChange(err error) {
	if err != nil {
		w.last.Log(w.log, err, "Doesn't notify the service manager's watchdog, which will restart the agent soon",
			"timeout", w.notifier.watchdog)
	} else if w.last.Clear() {
		w.log.Info("Notifies the service manager's watchdog again")
	}
}
