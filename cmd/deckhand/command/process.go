package command

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/agent"
	agentpreflight "github.com/deckhand-node/deckhand/internal/agent/preflight"
	"github.com/deckhand-node/deckhand/internal/agent/reset"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/flags"
	"github.com/deckhand-node/deckhand/internal/host/lockfile"
	hostprocess "github.com/deckhand-node/deckhand/internal/host/process"
	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/kit/buildinfo"
	"github.com/deckhand-node/deckhand/internal/kit/logging"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/counters"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

// process holds the parts of an agent that exist once per process: the flags, the connection to the service manager,
// the signals and the lock file.
type process struct {
	flags *flags.Set
	// notifier and hangUp are nil in `deckhand up`: it has no service manager, and ends with its terminal.
	notifier *hostprocess.Notifier
	hangUp   chan os.Signal
	// endOutliving is the result of outliveReaders.
	endOutliving func()
	// lock is held while the agent runs; nil without --lock-file.
	lock *lockfile.Named
	// once is the writer for the output of --runonce.
	once io.Writer
	// started is called once the local API serves requests; may be nil.
	started func()
	// stopAll makes the agent stop all pods and exit.
	stopAll bool
}

// takeOver removes the service manager's socket from the environment, so that child processes don't inherit it, and
// handles SIGHUP, which requests a reload and would end the process otherwise.
func takeOver(set *flags.Set) (*process, error) {
	p := &process{flags: set, hangUp: make(chan os.Signal, 1)}
	var err error
	if p.notifier, err = hostprocess.New(os.Getenv, os.Unsetenv); err != nil {
		return nil, err
	}
	signal.Notify(p.hangUp, syscall.SIGHUP)
	p.endOutliving = outliveReaders()
	return p, nil
}

func (p *process) close() {
	signal.Stop(p.hangUp)
	p.endOutliving()
}

// run runs the agent in this process until ctx ends. Before that, it waits for the lock file and checks that the host
// meets the requirements.
func (p *process) run(ctx context.Context, cfg *config.Config, stdout, stderr io.Writer) (err error) {
	if cfg.LockFile != "" {
		// The lock comes before the preflight checks: the agent that holds it still uses the ports.
		if cfg, err = p.awaitLock(ctx, cfg, stdout, stderr); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, p.lock.Release()) }()
	}
	if cfg.Kubelet.RunOnce {
		p.once = stdout
	}
	log, err := openLogging(ctx, cfg, stdout, stderr)
	if err != nil {
		return err
	}
	defer log.Close()
	warnings, err := preflight(ctx, cfg)
	if err != nil {
		return err
	}
	return p.serve(ctx, cfg, warnings, log)
}

// awaitLock waits for the lock file and then reloads the configuration, because waiting may have taken days.
func (p *process) awaitLock(ctx context.Context, cfg *config.Config, stdout, stderr io.Writer) (*config.Config, error) {
	log, err := logging.Open(logging.ConfigOf(&cfg.Kubelet.Logging, stdout, stderr))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	if p.lock, err = lockfile.AcquireNamed(ctx, cfg.LockFile, log.Logger()); err != nil {
		return nil, err
	}
	if cfg, err = config.Load(ctx, p.flags); err != nil {
		return nil, errors.Join(err, p.lock.Release())
	}
	return cfg, nil
}

// serve runs the agent on a host that has passed preflight. warnings are the non-fatal problems that preflight found.
func (p *process) serve(ctx context.Context, cfg *config.Config, warnings []string, log *logging.Log) error {
	logger := log.Logger()
	for _, line := range warnings {
		logger.Info("Something is missing on this host", "message", line)
	}
	adjust(logger, cfg)
	a, err := agent.New(cfg, agent.Options{
		Log: logger, SetVerbosity: log.SetVerbosity, Notifier: p.notifier, HangUp: p.hangUp, Once: p.once,
		Started: p.started, Lock: p.lock, StopAll: p.stopAll, Moved: func() { adjustToGroups(logger) },
		Reread: func(ctx context.Context, old *config.Config) (*config.Config, error) {
			return old.Reload(ctx, p.flags)
		},
	})
	if err != nil {
		return err
	}
	logger.Info("Starting agent", "version", buildinfo.Get().Version, "rootDir", cfg.RootDir, "node", cfg.NodeName,
		"embeddedRuntime", cfg.UsesEmbeddedRuntime(), "standalone", cfg.Standalone)
	err = a.Run(ctx)
	logger.Info("Agent stopped", "err", err)
	return err
}

// openLogging opens the configured log, also for libraries. When ctx ends it closes the log, which disables
// buffering: a second signal ends the process without a flush.
func openLogging(ctx context.Context, cfg *config.Config, stdout, stderr io.Writer) (*logging.Log, error) {
	log, err := logging.Open(logging.ConfigOf(&cfg.Kubelet.Logging, stdout, stderr))
	if err != nil {
		return nil, err
	}
	if err := log.RedirectLibraries(); err != nil {
		log.Close()
		return nil, err
	}
	context.AfterFunc(ctx, log.Close)
	return log, nil
}

// adjust sets the process's limits, and continues with the previous ones if that fails.
func adjust(log logr.Logger, cfg *config.Config) {
	if err := hostprocess.SetOOMScoreAdj(int(ptr.Deref(cfg.Kubelet.OOMScoreAdj, 0))); err != nil {
		log.Info("The agent isn't kept from being killed when the host's memory runs out (oomScoreAdj)", "err", err)
	}
	if _, err := hostprocess.RaiseOpenFiles(uint64(cfg.Kubelet.MaxOpenFiles)); err != nil {
		log.Info("The agent can't have as many open files as configured (maxOpenFiles)", "err", err)
	}
}

// adjustToGroups sets two values that depend on the limits of the agent's control groups: the soft limit of memory, and
// the number of idle threads that are created in advance.
func adjustToGroups(log logr.Logger) {
	own, err := tree.ReadOwnLimits()
	if err != nil {
		log.Info("The limits of the agent's control groups can't be read", "err", err)
	}
	if limit, ok := memoryLimit(own, os.Getenv); ok {
		debug.SetMemoryLimit(limit)
	}
	// If the limit of processes is low, the threads would leave no room for child processes.
	spare := min(uint64(hostprocess.ThreadsAhead()), own.Processes/2)
	hostprocess.PrepareThreads(int(spare))
}

// memoryLimit returns the Go runtime's soft limit of memory, in bytes: nine tenths of the limit of the agent's control
// groups, so that garbage is collected before the kernel kills the agent. ok is false if the control groups have no
// limit, or the environment sets one (GOMEMLIMIT).
func memoryLimit(own tree.OwnLimits, getenv func(string) string) (bytes int64, ok bool) {
	if own.Memory == counters.Unlimited || getenv("GOMEMLIMIT") != "" {
		return 0, false
	}
	return int64(own.Memory / 10 * 9), true
}

// preflight checks whether the agent can run on this host, and changes nothing. warnings are the non-fatal problems.
func preflight(ctx context.Context, cfg *config.Config) (warnings []string, err error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("must run as root, to create containers, mounts and network interfaces")
	}
	// This check comes before locking the root directory, because the lock is a file in it.
	if err := rootdir.Refuse(cfg.RootDir); err != nil {
		return nil, &usageError{err}
	}
	if _, err := os.Stat(cfg.RootDir); err == nil {
		lock, err := lockfile.Acquire(cfg.RootDir)
		if err != nil {
			return nil, err
		}
		if err := errors.Join(reset.CheckRecord(cfg.RootDir), lock.Release()); err != nil {
			return nil, err
		}
	}
	problems := agentpreflight.Check(ctx, checksFor(cfg))
	if err := ctx.Err(); err != nil {
		return nil, err // cancelled checks say nothing about the host
	}
	for _, p := range problems {
		if !p.Fatal {
			warnings = append(warnings, p.Message)
		}
	}
	return warnings, agentpreflight.Fatal(problems)
}

func checksFor(cfg *config.Config) agentpreflight.Config {
	k := &cfg.Kubelet
	c := agentpreflight.Config{RootDir: cfg.RootDir, Again: reset.Recorded(cfg.RootDir),
		Endpoint: k.ContainerRuntimeEndpoint, ProtectKernelDefaults: k.ProtectKernelDefaults,
		Swap: attitude(k.FailSwapOn), CgroupV1: attitude(k.FailCgroupV1), BuiltAt: buildinfo.Get().Time,
		NodeIPs: cfg.NodeIPs}
	if cfg.UsesEmbeddedRuntime() {
		c.Runtime = embedded.ConfigOf(cfg)
	}
	for _, address := range []netip.AddrPort{cfg.Healthz, cfg.ReadOnly} {
		if address.Port() != 0 {
			c.Listen = append(c.Listen, address.String())
		}
	}
	return c
}

// attitude returns how preflight handles a condition for which there is a setting such as failSwapOn: fail is the value
// of the setting. A permitted condition is still logged, because it may harm pods.
func attitude(fail *bool) agentpreflight.Attitude {
	if ptr.Deref(fail, true) {
		return agentpreflight.Refuse
	}
	return agentpreflight.Warn
}
