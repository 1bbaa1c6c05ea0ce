package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/document"
	"github.com/deckhand-node/deckhand/internal/config/fields"
	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/host/process"
	"github.com/deckhand-node/deckhand/internal/image/gc"
	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/resources/pressure"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/rotate"
	"github.com/deckhand-node/deckhand/internal/worker"
)

// rereader returns a function that reads the configuration again. It returns an error for a configuration with which
// an agent couldn't start on this node. After that check only the host can refuse a part of the configuration, such
// as a limit of a control group; such an error is logged.
func rereader(reread func(context.Context, *config.Config) (*config.Config, error),
	node capacity.Node) func(context.Context, *config.Config) (*config.Config, error) {
	return func(ctx context.Context, old *config.Config) (*config.Config, error) {
		next, err := reread(ctx, old)
		if err != nil {
			return nil, err
		}
		_, err = node.Allocatable(&next.Kubelet)
		_, wrong := pressure.SettingsOf(&next.Kubelet)
		return next, errors.Join(err, wrong)
	}
}

// liveSettings are the parts that apply settings which may change while the agent runs.
type liveSettings struct {
	setVerbosity func(verbosity uint32, vmodule string) error
	node         *node
	puller       *pull.Manager
	collector    *gc.Collector
	rotator      *rotate.Rotator
	pressure     *pressure.Manager
	cluster      apiServer
	waker        *worker.Waker
	log          logr.Logger
}

// apply passes the new settings to the parts in s. It has to handle every field that is marked Live and has a
// Package in config/fields.
func (s liveSettings) apply(cfg *config.Config) {
	k := &cfg.Kubelet
	log := logging.ConfigOf(&k.Logging, nil, nil)
	evictions, wrong := pressure.SettingsOf(k)
	err := errors.Join(s.setVerbosity(log.Verbosity, log.VModule), s.node.setAllocatable(k), s.node.setLimits(cfg),
		wrong)
	if err != nil {
		s.log.Error(err, "Can't apply a part of the configuration that was found valid")
	}
	if wrong == nil {
		s.pressure.SetSettings(evictions) // without effect unless the manager runs
	}
	s.puller.SetLimits(pull.LimitsOf(k))
	s.collector.SetPolicy(gc.PolicyOf(k))
	s.rotator.SetLimits(rotate.ConfigOf(k.PodLogsDir, k))
	s.cluster.SetLimits(k)
	s.waker.WakeAll() // a pod's back-off may be longer than the new crashLoopBackOff allows
}

// levelSetter returns a function that changes the log verbosity until the configuration is applied again. Files with
// a level of their own (vmodule) keep it.
func levelSetter(set func(uint32, string) error, reloader *config.Reloader) func(uint32) error {
	return func(verbosity uint32) error {
		return set(verbosity, logging.ConfigOf(&reloader.Current().Kubelet.Logging, nil, nil).VModule)
	}
}

// watchConfig returns a function that calls the function look after each change of the configuration's files, until its
// context ends. If the files can't be watched, it logs that; then only SIGHUP reloads the configuration.
func watchConfig(watched *filewatch.Instance, sources []string, look func(),
	log logr.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		files := watched.NewSettled(sources, document.IsDropIn, log)
		done := make(chan error, 1)
		go func() { done <- files.Run(ctx) }()
		for {
			select {
			case err := <-done:
				if err != nil && ctx.Err() == nil {
					log.Error(err, "The configuration files aren't watched any more: send SIGHUP after a change")
					<-ctx.Done()
				}
				return nil
			case <-files.Changed():
				look()
			}
		}
	}
}

// reloads reports reloads of the configuration: to the service manager, in the log, as an event of the node, as a
// metric, and in the list of problems.
type reloads struct {
	service *process.Service
	events  events.Node
	meter   *metrics.Reloads
	log     logr.Logger

	// failure is the last failure to reload, for the list of problems; nil if there is no such list.
	failure *reloadFailure
}

// reloadFailure is the reason for which the newest configuration isn't in force.
type reloadFailure struct {
	mu       sync.Mutex
	problems []pod.Problem
}

// get returns the problem of the last reload; nil while the newest configuration is in force.
func (f *reloadFailure) get() []pod.Problem {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.problems
}

func (f *reloadFailure) set(problems ...pod.Problem) {
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.problems = problems
}

func (r reloads) start() {
	if err := r.service.Reloading(); err != nil {
		r.log.Error(err, "Can't notify the service manager of a reload")
	}
}

func (r reloads) end(result config.ReloadResult) {
	r.meter.Reloaded(metrics.ReloadResult(result.Outcome), time.Now())
	message := result.Message()
	switch result.Outcome {
	case config.Applied:
		r.failure.set()
		r.log.Info("Configuration reloaded", "changed", result.Changed)
		logNotes(r.log, result.Current, result.Before)
		r.events.NodeEvent(v1.EventTypeNormal, pod.ReasonConfigurationReloaded, message)
	case config.Unchanged:
		r.failure.set()
		r.log.Info("Configuration read again, nothing in it has changed")
	default:
		r.failure.set(pod.Problem{Origin: "configuration", Message: message + "; the one from before is in force",
			Since: time.Now(), General: true})
		r.log.Error(fmt.Errorf("%s", message), "Configuration not reloaded")
		r.events.NodeEvent(v1.EventTypeWarning, pod.ReasonConfigurationNotReloaded, message)
	}
	if err := r.service.Reloaded(message); err != nil {
		r.log.Error(err, "Can't notify the service manager that a reload has ended")
	}
}

// logNotes logs the settings of cfg that have no effect, are deprecated or make the node less secure. It leaves out
// those that were logged for before, the previous configuration, which is nil at the agent's start.
func logNotes(log logr.Logger, cfg, before *config.Config) {
	if before == nil {
		before = &config.Config{}
	}
	fresh := slices.DeleteFunc(slices.Clone(cfg.NotActedOn), func(t fields.Notice) bool {
		return slices.Contains(before.NotActedOn, t)
	})
	for _, line := range fields.Lines(fresh) {
		log.Info("A setting has no effect in this build", "setting", line)
	}
	for _, line := range cfg.Deprecated {
		if !slices.Contains(before.Deprecated, line) {
			log.Info("A setting is deprecated", "setting", line)
		}
	}
	for _, e := range cfg.Exposures {
		if !slices.Contains(before.Exposures, e) {
			log.Info("A setting opens this node", "setting", e.Path, "message", e.Message)
		}
	}
}
