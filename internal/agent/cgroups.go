package agent

import (
	"context"
	"errors"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/observed"
	"github.com/deckhand-node/deckhand/internal/resources"
	"github.com/deckhand-node/deckhand/internal/resources/capacity"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
)

// askAgain is how often a runtime that isn't there is asked for its cgroup driver.
const askAgain = time.Second

func cgroupConfig(cfg *config.Config, facts capacity.Node) resources.Config {
	k := &cfg.Kubelet
	return resources.Config{
		Driver: resources.Driver(k.CgroupDriver), CgroupRoot: k.CgroupRoot,
		NoCPUQuota: !ptr.Deref(k.CPUCFSQuota, true), CPUPeriod: k.CPUCFSQuotaPeriod.Duration,
		PIDsLimit: ptr.Deref(k.PodPidsLimit, -1), Swap: swapForPods(k, facts), Memory: facts.Memory, ReserveMemory: reservesMemory(cfg),
	}
}

// cgroupsModule finds out how control groups are made, and by whom. The embedded runtime is
// told; another one is asked, and workers wait for its answer: pods in the wrong tree would
// have no limits.
func (a *Agent) cgroupsModule() module {
	m := module{name: "control groups"}
	if a.embedded != nil {
		m.start = func(context.Context) error { return a.startCgroups() }
	}
	m.run = func(ctx context.Context) error {
		defer a.node.cgroups.Close()
		if a.embedded == nil {
			if err := a.askCgroupDriver(ctx); err != nil || ctx.Err() != nil {
				return err
			}
			if err := a.startCgroups(); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-a.observed.Synced():
			close(a.settled)
		}
		<-ctx.Done()
		return nil
	}
	return m
}

// askCgroupDriver goes by what the runtime says of its cgroup driver, where it says
// anything (KEP-4033), and waits for a runtime that isn't there.
func (a *Agent) askCgroupDriver(ctx context.Context) error {
	said := ""
	for {
		answer, err := a.conn.RuntimeConfig(ctx)
		switch linux := answer.GetLinux(); {
		case ctx.Err() != nil:
			return nil
		case cri.IsUnimplemented(err) || err == nil && linux == nil:
			return nil
		case err == nil:
			driver := resources.DriverCgroupfs
			if linux.CgroupDriver == runtimeapi.CgroupDriver_SYSTEMD {
				driver = resources.DriverSystemd
			}
			if configured := a.cfg.Kubelet.CgroupDriver; configured != string(driver) {
				a.log.Info("The runtime has another cgroup driver than the configuration: its own counts", "cgroupDriver", configured, "runtime", driver)
			}
			a.node.cgroups.UseDriver(driver)
			return nil
		case !cri.IsUnavailable(err) && err.Error() != said:
			said = err.Error()
			a.log.Error(err, "The runtime can't be asked for its cgroup driver; it is asked again")
		}
		wait := time.NewTimer(askAgain)
		select {
		case <-ctx.Done():
		case <-wait.C:
		}
		wait.Stop()
	}
}

// startCgroups finds out what the host's control groups can do, and tells what of the
// configuration they can't.
func (a *Agent) startCgroups() error {
	if err := a.node.cgroups.Check(); err != nil {
		return err
	}
	support, err := a.node.cgroups.Support()
	if err != nil {
		return err
	}
	k, s := &a.cfg.Kubelet, a.node.fixed
	s.CgroupV2, s.BoundSwap, s.HugePageSizes = support.V2, support.Swap, support.HugePages
	// On cgroup v2 a container dies as a whole when it runs out of memory, unless told otherwise.
	s.GroupOOMKill = support.V2 && !ptr.Deref(k.SingleProcessOOMKill, false)
	if k.SingleProcessOOMKill != nil && !*k.SingleProcessOOMKill && !support.V2 {
		return errors.New("invalid configuration: singleProcessOOMKill: false needs cgroup v2, and this host has v1: leave it out")
	}
	for _, warning := range a.node.cgroups.Warnings(support, a.node.capacity, s.MemoryQoS.Enabled) {
		a.log.Info("Not all of the configuration can be had on this host", "warning", warning)
	}
	return nil
}

// settledState is the observed state to workers, who begin once control groups are settled, too.
type settledState struct {
	*observed.Store
	settled <-chan struct{}
}

// Synced is closed once the runtime's state and the host's control groups are known.
func (s settledState) Synced() <-chan struct{} { return s.settled }
