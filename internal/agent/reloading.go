package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/document"
	"github.com/deckhand-node/deckhand/internal/logging"
	"github.com/deckhand-node/deckhand/internal/metrics"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/reload"
	"github.com/deckhand-node/deckhand/internal/reload/filewatch"
)

func (a *Agent) newReloader() *reload.Reloader {
	return reload.New(a.cfg, reload.Options{Load: a.reread, Apply: a.apply, Begin: a.reloadBegins, End: a.reloadEnds})
}

// reread reads the configuration anew. What an agent couldn't start with on this node is an
// error here, too: nothing that is taken in may fail when it is applied.
func (a *Agent) reread(ctx context.Context, old *config.Config) (*config.Config, error) {
	next, err := a.options.Reread(ctx, old)
	if err != nil {
		return nil, err
	}
	_, err = a.node.capacity.Allocatable(&next.Kubelet)
	return next, err
}

// apply hands what may change while the agent runs to those who act on it. Every field that
// is Live in config/fields and has a Room is here, unless it counts from the next start.
func (a *Agent) apply(cfg *config.Config) {
	k := &cfg.Kubelet
	log := logging.ConfigOf(&k.Logging, nil, nil)
	verbosity, room := a.options.SetVerbosity(log.Verbosity, log.VModule), a.node.setAllocatable(k)
	if err := errors.Join(verbosity, room); err != nil {
		a.log.Error(err, "A part of the configuration that was found valid isn't taken")
	}
	a.grants.SetAllocatable(a.node.allocatable())
	a.pulls.SetLimits(pullLimits(k))
	a.collector.SetPolicy(collectionPolicy(k))
	a.rotator.SetLimits(rotationLimits(k))
	a.pool.WakeAll() // who waits for longer than crashLoopBackOff allows now, or for resources, goes on
}

// awaitReloads asks for a reload on a signal, until ctx ends.
func (a *Agent) awaitReloads(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.options.HangUp:
			a.reloader.Ask()
		}
	}
}

// watchConfig has the configuration looked at whenever its files change, until ctx ends. An
// agent that can't watch them goes on: a signal does it, too.
func (a *Agent) watchConfig(ctx context.Context) error {
	files := filewatch.New(a.cfg.Sources, document.IsDropIn, a.log.WithName("config"))
	done := make(chan error, 1)
	go func() { done <- files.Run(ctx) }()
	for {
		select {
		case err := <-done:
			if err != nil && ctx.Err() == nil {
				a.log.Error(err, "The files of the configuration aren't watched any more: send SIGHUP after a change")
				<-ctx.Done()
			}
			return nil
		case <-files.Changed():
			a.reloader.Look()
		}
	}
}

func (a *Agent) reloadBegins() {
	if err := a.service.reloading(); err != nil {
		a.log.Error(err, "Can't tell the service manager of a reload")
	}
}

// reloadEnds tells of a reload: in the log, as an event of the node and as a metric.
func (a *Agent) reloadEnds(r reload.Result) {
	a.metrics.Reloads.Reloaded(metrics.ReloadResult(r.Outcome), time.Now())
	message := r.Message()
	event := pod.Event{Type: v1.EventTypeNormal, Reason: "ConfigurationReloaded", Message: message}
	switch r.Outcome {
	case reload.Applied:
		a.log.Info("Configuration reloaded", "changed", r.Changed)
		tellNotes(a.log, a.reloader.Current(), r.Before)
	case reload.Unchanged:
		a.log.Info("Configuration read again, nothing in it has changed")
		event.Reason = "" // nothing happened
	default:
		a.log.Error(fmt.Errorf("%s", message), "Configuration not reloaded")
		event.Type, event.Reason = v1.EventTypeWarning, "ConfigurationNotReloaded"
	}
	if event.Reason != "" {
		a.tellNode(event)
	}
	if err := a.service.reloaded(message); err != nil {
		a.log.Error(err, "Can't tell the service manager that a reload is over")
	}
}
