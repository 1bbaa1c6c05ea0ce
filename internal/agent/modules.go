package agent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/agent/reset"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/internal/host/lockfile"
	"github.com/deckhand-node/deckhand/internal/host/process"
	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/kit/socket"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/health"
	"github.com/deckhand-node/deckhand/internal/server/local"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// The modules below do more than call one function of a part.

// rootModule creates the root directory and holds its lock while all other modules run. If record is true, it writes
// the install record (package reset). Otherwise the agent only stops pods, and gives up the reserve on a full disk.
func rootModule(cfg *config.Config, dirs rootdir.Layout, record bool, reserve *room.Reserve) modules.Module {
	var lock *lockfile.Lock // set by Start for Run
	return modules.Module{
		Name: "root directory",
		Start: func(context.Context) (err error) {
			if err := (embedded.Config{RootDir: cfg.RootDir}).Claim(); err != nil {
				return err
			}
			acquire := lockfile.Acquire
			if !record {
				acquire = lockfile.AcquireToEnd
			}
			if lock, err = acquire(cfg.RootDir); err != nil {
				return err
			}
			if !record {
				reserve.Release()
			}
			// Without an agent, pods can't be stopped. So if the disk is full, this start may use the reserve that the
			// last agent made.
			err = reserve.Spend(func() error {
				if err := dirs.Make(); err != nil || !record {
					return err
				}
				return reset.Record(cfg)
			})
			if err != nil {
				return errors.Join(err, lock.Release())
			}
			return nil
		},
		Run: func(ctx context.Context) error {
			<-ctx.Done()
			return lock.Release()
		},
	}
}

// listenAgain is the delay between attempts to listen on the local API's socket.
const listenAgain = 2 * time.Second

// localModule serves the local API to commands on this machine, and calls the function started once its socket listens.
// If the disk is full or has no free inode, it gives up the reserve, because only commands can stop pods then. If there
// is no reserve, the agent starts without the API, and the module tries again every listenAgain. With stopAll, the
// agent also starts without the API if the disk fails.
func localModule(api *local.Server, root string, stopAll bool, started func(), reserve *room.Reserve,
	log logr.Logger) modules.Module {
	tolerated := atomicfile.DiskFull
	if stopAll {
		tolerated = atomicfile.DiskFails
	}
	var listener net.Listener // set by Start for Run
	listen := func() error {
		err := reserve.Spend(func() (err error) {
			listener, err = socket.Listen(local.SocketPath(root))
			return err
		})
		if err == nil {
			started()
		}
		return err
	}
	return modules.Module{
		Name: "local API",
		Start: func(context.Context) error {
			err := listen()
			if tolerated(err) {
				log.Error(err, "Commands on this machine aren't heard until the disk can be written")
				return nil
			}
			return err
		},
		Run: func(ctx context.Context) error {
			for listener == nil {
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(listenAgain):
				}
				if err := listen(); err != nil && !tolerated(err) {
					return err
				}
			}
			return api.Serve(ctx, listener)
		},
	}
}

// onHangUp returns a function that calls the function ask on each signal that hangUp receives, until its context ends.
func onHangUp(hangUp <-chan os.Signal, ask func()) func(context.Context) error {
	return func(ctx context.Context) error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hangUp:
				ask()
			}
		}
	}
}

// yieldLock returns a function that waits until another process tries to acquire the agent's lock file, and then ends
// the agent (the kubelet's --exit-on-lock-contention). If that isn't configured, the function only waits for the end of
// its context.
func yieldLock(cfg *config.Config, lock *lockfile.Named, log logr.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		if cfg.YieldLock {
			if err := lock.Unwatched(); err != nil {
				log.Error(err, "The lock file can't be watched: a process that wants it is noticed later",
					"path", cfg.LockFile, "period", filewatch.Every)
			}
			if err := lock.Contended(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			if ctx.Err() == nil {
				log.Info("Another process wants the lock file: the agent stops, its pods keep running",
					"path", cfg.LockFile)
				return modules.ErrDone
			}
		}
		<-ctx.Done()
		return nil
	}
}

// processesModule moves the host's processes and the agent into their control groups, before the agent starts any
// process that belongs in its own. Then it calls moved.
func processesModule(move func() error, moved func()) modules.Module {
	return modules.Module{Name: "processes of the host", Start: without(func() error {
		if err := move(); err != nil {
			return err
		}
		moved()
		return nil
	})}
}

// setKernelFlags returns a function that sets the sysctls that the kubelet requires. The function does nothing in
// three kinds of agents: one with protectKernelDefaults, which only checks them; a standalone one, because its
// machine may have other purposes; and one that only stops all pods.
func setKernelFlags(cfg *config.Config, stopAll bool, log logr.Logger) func(context.Context) error {
	return func(context.Context) error {
		if cfg.Standalone || stopAll || cfg.Kubelet.ProtectKernelDefaults {
			return nil
		}
		changed, err := kernel.Sysctls("/proc/sys").Set()
		if len(changed) > 0 {
			log.Info("Changed kernel settings to those that the kubelet needs", "changed", changed)
		}
		if err != nil {
			log.Error(err, "Can't set the kernel settings that the kubelet needs")
		}
		return nil
	}
}

// cgroupsModule configures control groups. If ask is false, the agent itself has configured the driver of the embedded
// runtime. Otherwise the module asks the runtime for its driver, and workers wait for the answer: pods in the wrong
// tree would have no limits. The module creates the groups that all pods have in common, unless the agent only stops
// pods: then an earlier agent has created them with their limits. It closes ready once control groups are configured
// and synced is closed.
func cgroupsModule(n *node, ask, stopAll bool, runtime *health.State, synced <-chan struct{},
	ready chan<- struct{}) modules.Module {
	m := modules.Module{Name: "control groups"}
	if !ask {
		m.Start = n.configureCgroups
	}
	m.Run = func(ctx context.Context) error {
		defer n.cgroups.Close()
		if ask {
			driver, known := runtime.CgroupDriver(ctx)
			if ctx.Err() != nil {
				return nil
			}
			if known {
				n.useDriver(tree.Driver(driver))
			}
			if err := n.configureCgroups(ctx); err != nil {
				return err
			}
		}
		if !stopAll {
			if err := n.cgroups.EnsureQoSCgroups(ctx); err != nil && ctx.Err() == nil {
				n.log.Error(err, "Can't create the control groups of all pods yet: trying again with each pod")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-synced:
			close(ready)
		}
		<-ctx.Done()
		return nil
	}
	return m
}

// oomModule records an event of the node (SystemOOM) when the machine runs out of memory. It ignores processes that
// reach the limit of a control group, such as a container's: the runtime reports these. If the agent may not read
// the kernel log, it runs without these events.
func oomModule(device string, record events.Node, log logr.Logger) modules.Module {
	const consequence = "Nobody is told when the machine runs out of memory (events with the reason SystemOOM)"
	var opened *kernel.Log // set by Start for Run
	return modules.Module{
		Name: "out of memory",
		Start: orLogged(func(context.Context) (err error) {
			opened, err = kernel.OpenLog(device)
			return err
		}, log, consequence),
		Run: func(ctx context.Context) error {
			if opened != nil {
				err := opened.OOMKills(ctx, func(k kernel.OOMKill) {
					if !k.Limit {
						record.NodeEvent(v1.EventTypeWarning, pod.ReasonSystemOOM,
							fmt.Sprintf("System OOM encountered, victim process: %s, pid: %d", k.Process, k.PID))
					}
				}, func() {
					log.Info("The kernel has logged more than could be read in time: an event SystemOOM may be missing")
				})
				if err != nil {
					log.Error(err, "The agent goes on after an error", "consequence", consequence)
				}
			}
			<-ctx.Done()
			return nil
		},
	}
}

// orLogged returns a start function that calls the function begin. It logs an error of begin, with the message
// consequence, instead of returning it.
func orLogged(begin func(context.Context) error, log logr.Logger, consequence string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := begin(ctx); err != nil {
			log.Error(err, "The agent goes on after an error at start", "consequence", consequence)
		}
		return nil
	}
}

// without adapts a function that needs no context.
func without(f func() error) func(context.Context) error {
	return func(context.Context) error { return f() }
}

// statsPatience limits how long the agent, when it ends, waits for statfs calls that are still running.
const statsPatience = time.Second

// closeAtEnd returns a function that stops reading volume statistics when its context ends.
func closeAtEnd(stats *usage.StatsReader, log logr.Logger) func(context.Context) error {
	return func(ctx context.Context) error {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), statsPatience)
		defer cancel()
		if err := stats.Close(end); err != nil {
			log.Info("A file system doesn't answer", "err", err)
		}
		return nil
	}
}

// readyAnyway is the time after which readiness is notified although no runtime answers. Without the notification the
// service manager would conclude that the agent can't start.
const readyAnyway = 30 * time.Second

// serviceModule sends the service manager READY once workers may start (or after readyAnyway), watchdog notifications
// while the workers are healthy, and STOPPING when the agent stops.
func serviceModule(s *process.Service, notifier *process.Notifier, node string, workersReady <-chan struct{},
	healthy func(time.Time) error, log logr.Logger) modules.Module {
	return modules.Module{
		Name: "service manager",
		Start: func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				return nil
			case <-workersReady:
			case <-time.After(readyAnyway):
			}
			if err := s.Ready("running the pods of node " + node); err != nil {
				log.Error(err, "Can't notify the service manager that the agent is ready")
			}
			return nil
		},
		Run: func(ctx context.Context) error {
			err := notifier.Watchdog(ctx, func(context.Context) error {
				return healthy(time.Now())
			}, log.WithName("watchdog"))
			if err := s.Stopping(); err != nil {
				// Not an error of the agent: the service manager itself may have ended.
				log.Error(err, "Can't notify the service manager that the agent is stopping")
			}
			return err
		},
	}
}

// profileContention enables the block profile until its context ends.
func profileContention(ctx context.Context) error {
	runtime.SetBlockProfileRate(1)
	defer runtime.SetBlockProfileRate(0)
	<-ctx.Done()
	return nil
}

// The agent releases memory once no pod's status has changed for restAfter, and at most every releaseEvery.
const (
	restAfter    = 10 * time.Second
	releaseEvery = 10 * time.Minute
)

// releaseAtRest returns a function that calls the function release when the agent comes to rest: after its start, and
// after later changes of pods. The channel of watch receives after such a change.
func releaseAtRest(watch func() (<-chan struct{}, func()), release func()) func(context.Context) error {
	return func(ctx context.Context) error {
		changed, cancel := watch()
		defer cancel()
		rest := time.NewTimer(restAfter)
		defer rest.Stop()
		for earliest := time.Now(); ; {
			select {
			case <-ctx.Done():
				return nil
			case <-changed:
				rest.Reset(max(restAfter, time.Until(earliest)))
			case <-rest.C:
				release()
				earliest = time.Now().Add(releaseEvery)
			}
		}
	}
}
