package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/config/v1beta1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/apparmor"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/config/gates"
	"github.com/deckhand-node/deckhand/internal/config/validation"
	"github.com/deckhand-node/deckhand/internal/kernelflags"
	"github.com/deckhand-node/deckhand/internal/resources"
	"github.com/deckhand-node/deckhand/internal/resources/capacity"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/userns"
)

// node is what the host gives to pods.
type node struct {
	capacity capacity.Node
	cgroups  *resources.Manager
	users    *podUsers
	// fixed are the settings that don't change once the modules of this file have started.
	fixed *translate.Settings
	// room is what pods can have: see allocatable.
	room atomic.Pointer[v1.ResourceList]
}

// allocatable is what pods can have at the moment. It must not be changed.
func (n *node) allocatable() v1.ResourceList { return *n.room.Load() }

// setAllocatable makes that what a configuration leaves of the node.
func (n *node) setAllocatable(k *v1beta1.KubeletConfiguration) error {
	list, err := n.capacity.Allocatable(k)
	if err == nil {
		n.room.Store(&list)
	}
	return err
}

// settings are what containers are made with at the moment.
func (n *node) settings() *translate.Settings {
	s, room := *n.fixed, n.allocatable()
	s.MemoryQoS.Allocatable = room.Memory().Value()
	return &s
}

// newNode reads what the host has.
func (a *Agent) newNode() (*node, error) {
	k := &a.cfg.Kubelet
	facts, err := capacity.Read("/", a.cfg.RootDir)
	if err != nil {
		return nil, err
	}
	n := &node{capacity: facts, users: &podUsers{}}
	if err := n.setAllocatable(k); err != nil {
		return nil, err
	}
	n.cgroups = resources.New(cgroupConfig(a.cfg, facts), a.log.WithName("cgroups"))
	armor := apparmor.Host{}
	n.fixed = &translate.Settings{
		PodLogsDir: k.PodLogsDir, ClusterDomain: k.ClusterDomain,
		SeccompRoot: filepath.Join(a.cfg.RootDir, "seccomp"), SeccompDefault: ptr.Deref(k.SeccompDefault, false),
		AppArmor: armor.Enabled(), AppArmorLoaded: armor.Loaded,
		AllowedUnsafeSysctls: k.AllowedUnsafeSysctls, KernelVersion: kernelVersion(), MaskedPaths: thermalThrottle(),
		NoCPUQuota: !ptr.Deref(k.CPUCFSQuota, true), CPUQuotaPeriod: k.CPUCFSQuotaPeriod.Duration,
		MemoryCapacity: facts.Memory, Swap: swapForPods(k, facts),
		MemoryQoS: translate.MemoryQoS{
			Enabled: a.cfg.Gates.Enabled(gates.MemoryQoS), ThrottlingFactor: ptr.Deref(k.MemoryThrottlingFactor, 0),
			Reserve: reservesMemory(a.cfg),
		},
	}
	return n, nil
}

// swapForPods is how much swap pods may share, in bytes.
func swapForPods(k *v1beta1.KubeletConfiguration, facts capacity.Node) int64 {
	if k.MemorySwap.SwapBehavior != validation.LimitedSwap {
		return 0
	}
	return facts.Swap
}

func reservesMemory(cfg *config.Config) bool {
	return cfg.Gates.Enabled(gates.MemoryQoS) && cfg.Kubelet.MemoryReservationPolicy == v1beta1.TieredReservationMemoryReservationPolicy
}

// kernelVersion is uname's; empty if it can't be had.
func kernelVersion() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// thermalThrottle lists folders that tell what other programs on the host do. Container
// runtimes mask them by default, but not beside a list of ours.
func thermalThrottle() []string {
	paths, _ := filepath.Glob("/sys/devices/system/cpu/cpu*/thermal_throttle") // fails for bad patterns only
	return paths
}

// setKernelFlags makes the kernel as the kubelet wants it, unless it only checks
// (protectKernelDefaults). A standalone agent leaves a machine that may be there for other
// things as it is.
func (a *Agent) setKernelFlags(context.Context) error {
	if a.cfg.Standalone || a.cfg.Kubelet.ProtectKernelDefaults {
		return nil
	}
	changed, err := kernelflags.Host("/proc/sys").Set()
	if len(changed) > 0 {
		a.log.Info("Kernel settings changed to those that the kubelet wants", "changed", changed)
	}
	if err != nil {
		a.log.Error(err, "The kernel isn't set as the kubelet wants it")
	}
	return nil
}

// startUsers finds out which user IDs pods may have, and reads which they have.
func (a *Agent) startUsers(ctx context.Context) error {
	k := &a.cfg.Kubelet
	perPod := uint32(userns.Block)
	if u := k.UserNamespaces; u != nil {
		perPod = uint32(ptr.Deref(u.IDsPerPod, userns.Block))
	}
	c := userns.Config{PodsDir: a.dirs.Pods(), PerPod: perPod}
	c.IDs, c.NoIDs = userns.Finder{MaxPods: k.MaxPods, PerPod: perPod}.Find(ctx)
	if c.NoIDs == nil && a.embedded != nil {
		if err := userns.Reach(a.embedded.StateDir()); err != nil {
			c.NoIDs = fmt.Errorf("containers with users of their own can't be run below %s: %w", a.cfg.RootDir, err)
		}
	}
	users := userns.New(c)
	if err := users.Restore(); err != nil {
		a.log.Error(err, "Some pods' ranges of user IDs can't be told; their containers run on")
	}
	a.node.users.set(users)
	return nil
}

// noDevices stands where rooms that hand out devices will: there is none yet.
type noDevices struct{}

func (noDevices) For(context.Context, *v1.Pod, *v1.Container) (translate.Devices, error) {
	return translate.Devices{}, nil
}

// podUsers offers the ranges of user IDs once they are known.
type podUsers struct {
	mu      sync.Mutex
	manager *userns.Manager
}

func (u *podUsers) set(m *userns.Manager) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.manager = m
}

func (u *podUsers) get() *userns.Manager {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.manager
}

func (u *podUsers) Ensure(uid types.UID) (userns.Range, error) { return u.get().Ensure(uid) }
func (u *podUsers) Get(uid types.UID) (userns.Range, error)    { return u.get().Get(uid) }
func (u *podUsers) Release(uid types.UID) error                { return u.get().Release(uid) }
