package agent

import (
	"context"
	"sync"
	"time"

	"github.com/deckhand-node/deckhand/internal/systemd"
)

// service is the agent as the service manager knows it: it starts, it is up, it ends. A
// reload may come at any time, and is over with the same word that says that the agent is up.
// Said too early, that word has units started that need the agent, and signs of life asked
// for that nobody gives yet. So of a reload it is told in full only while the agent is up.
type service struct {
	manager *systemd.Notifier

	mu    sync.Mutex
	stage stage
}

type stage int

const (
	starting stage = iota
	up
	ending
)

// ready says that the agent is up.
func (s *service) ready(status string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage = up
	return s.manager.Ready(status)
}

// reloading says that a reload begins; reloaded has to follow.
func (s *service) reloading() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage != up {
		return nil
	}
	return s.manager.Reloading()
}

// reloaded says what came of a reload.
func (s *service) reloaded(status string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.stage {
	case up:
		return s.manager.Ready(status)
	case starting:
		return s.manager.Status(status)
	default:
		return nil
	}
}

// stopping says that the end begins.
func (s *service) stopping() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage = ending
	return s.manager.Stopping()
}

// readyAnyway is how long the service manager waits for a runtime: longer, it would take the
// agent for one that can't start.
const readyAnyway = 30 * time.Second

// tellReady tells the service manager that everything has started, once pods are looked after.
func (a *Agent) tellReady(ctx context.Context) error {
	limit := time.NewTimer(readyAnyway)
	defer limit.Stop()
	select {
	case <-ctx.Done():
		return nil
	case <-a.settled:
	case <-limit.C:
	}
	if err := a.service.ready("looks after the pods of node " + a.cfg.NodeName); err != nil {
		a.log.Error(err, "Can't tell the service manager that the agent is ready")
	}
	return nil
}

// attendService gives the service manager signs of life, and says when the end begins.
func (a *Agent) attendService(ctx context.Context) error {
	err := a.service.manager.Watchdog(ctx, a.alive, a.log.WithName("watchdog"))
	if err := a.service.stopping(); err != nil {
		// No reason to end with an error: it may be the service manager that has gone.
		a.log.Error(err, "Can't tell the service manager that the agent ends")
	}
	return err
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
