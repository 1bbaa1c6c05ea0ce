package agent

import (
	"context"
	"errors"
)

// tellReady tells the service manager that everything has started.
func (a *Agent) tellReady(context.Context) error {
	if err := a.options.Notifier.Ready("looks after the pods of node " + a.cfg.NodeName); err != nil {
		a.log.Error(err, "Can't tell the service manager that the agent is ready")
	}
	return nil
}

// attendService gives the service manager signs of life, and says when the end begins.
func (a *Agent) attendService(ctx context.Context) error {
	err := a.options.Notifier.Watchdog(ctx, a.alive, a.log.WithName("watchdog"))
	return errors.Join(err, a.options.Notifier.Stopping())
}

// alive fails when a restart of the agent might help: its loop stands still. That the
// runtime isn't there, so that the loop hasn't begun, is nothing that a restart mends.
func (a *Agent) alive(ctx context.Context) error {
	if a.pool.Beat().IsZero() {
		return nil
	}
	return a.checkLoop(ctx)
}

// yieldLock ends the agent when somebody else wants its lock file, if it is to (the
// kubelet's --exit-on-lock-contention).
func (a *Agent) yieldLock(ctx context.Context) error {
	if a.cfg.YieldLock {
		if err := a.options.Lock.Contended(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() == nil {
			a.log.Info("Another process wants the lock file: the agent ends, its pods run on", "file", a.cfg.LockFile)
			a.end()
		}
	}
	<-ctx.Done()
	return nil
}
