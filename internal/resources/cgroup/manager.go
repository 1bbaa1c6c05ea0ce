// Package cgroup manages the tree of cgroups for pods, and the limits of each pod as a whole. The tree is the
// kubelet's (Kubernetes design proposal "pod-resource-management"), as directories or as transient slices of systemd:
//
//	kubepods/pod<UID>             Guaranteed pods
//	kubepods/burstable/pod<UID>
//	kubepods/besteffort/pod<UID>
//	kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID>.slice
//
// The runtime creates the groups of containers in the pod's.
package cgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// Config specifies where and how pods' groups are created.
type Config struct {
	// Driver determines how groups are named and created; empty means cgroupfs.
	Driver tree.Driver
	// CgroupRoot is the parent of kubepods; empty means "/". It is created if missing.
	CgroupRoot string
	// NoCPUQuota disables CPU limits of pods (KubeletConfiguration cpuCFSQuota: false).
	NoCPUQuota bool
	// CPUPeriod is the CFS period (KubeletConfiguration cpuCFSQuotaPeriod); 0 means 100 ms.
	CPUPeriod time.Duration
	// PIDsLimit limits the processes of a pod (KubeletConfiguration podPidsLimit); 0 and less is no limit. The node's
	// maximum always applies.
	PIDsLimit int64
	// Swap is the swap that pods may use in total (memorySwap.swapBehavior LimitedSwap), in bytes; 0 means NoSwap. On
	// cgroup v1 it is always 0 (KEP-2400).
	Swap int64
	// Memory is the node's memory in bytes. A pod's part of Swap is proportional to its part of Memory.
	Memory int64
	// ReserveMemory protects the memory that pods request from reclaim (memoryReservationPolicy TieredReservation, with
	// the feature gate MemoryQoS; KEP-2570). It needs cgroup v2. If kubepods has ancestors (CgroupRoot), their own
	// protection has to be at least as large, which is up to the administrator.
	ReserveMemory bool
	// QOSReserve reserves memory for pods of higher QoS classes (qosReserved, with the feature gate QOSReserved); nil
	// for none.
	QOSReserve *QOSReserve
	// CPUSets says that containers get CPUs of their own (cpuManagerPolicy static).
	CPUSets bool
	// Own and System are the groups for the agent and for the host's other processes (kubeletCgroups, systemCgroups).
	// Empty leaves the processes where they are.
	Own, System string
	// Pods limits all pods together (enforceNodeAllocatable pods); nil is no limit.
	Pods *Share
	// Reserved are the host's own groups on which reservations are enforced (system-reserved, kube-reserved).
	Reserved []Reserved
}

// Manager manages pods' groups. It is safe for concurrent use, but only one caller at a time may use it for the same
// pod.
type Manager struct {
	// Tree reads the groups. Its driver is the runtime's, not conf's.
	*tree.Tree
	conf        Config
	log         logr.Logger
	maker       maker
	hierarchies func() (hierarchies, error)
	kernel      func() kernel

	mu sync.Mutex
	// made means that the QoS cgroups have been created, enforced that the limit of all pods is in force. unenforced is
	// the last logged reason why that limit isn't in force.
	made, enforced bool
	// enforces means that EnforceReserved was called: limits of the host's own groups are enforced.
	enforces   bool
	unenforced string
	// requested are the requests of each pod that count for the QoS cgroups.
	requested map[types.UID]sums
	written   sums // the last values written to the QoS cgroups
	// limits are the last memory limits written to the QoS cgroups, by name.
	limits map[string]int64
}

// New returns a Manager. It doesn't read the host's cgroups yet.
func New(c Config, log logr.Logger) *Manager {
	c.CPUPeriod = cmp.Or(c.CPUPeriod, 100*time.Millisecond)
	m := &Manager{Tree: tree.New(c.Driver, c.CgroupRoot, c.Memory), conf: c, log: log, maker: makerOf(c.Driver),
		requested: map[types.UID]sums{}, limits: map[string]int64{}}
	m.hierarchies = sync.OnceValues(m.find)
	m.kernel = sync.OnceValue(readKernel)
	return m
}

// UseDriver overrides the configured driver: the runtime's driver takes precedence (KEP-4033). It has to be called
// before all methods but Limit.
func (m *Manager) UseDriver(d tree.Driver) {
	if d == m.Driver {
		return
	}
	m.maker.close()
	m.Driver, m.maker = d, makerOf(d)
}

// Check returns the first problem that prevents creating groups on this host, in one line; nil if there is none.
func (m *Manager) Check() error {
	if err := m.maker.check(); err != nil {
		return fmt.Errorf("cgroupDriver %q can't be used: %w; set cgroupDriver: %s, and the runtime's to the same",
			m.Driver, err, tree.DriverCgroupfs)
	}
	l, err := m.hierarchies()
	if err != nil {
		return err
	}
	return l.check()
}

// Close closes the connection to systemd, if there is one. Groups can't be created or changed afterwards.
func (m *Manager) Close() { m.maker.close() }

// Ensure creates the pod's group with limits l. If the group exists, Ensure does the same as Resize.
//
// On cgroup v1 it creates the group only in the hierarchies of the controllers that the agent uses. In the other
// hierarchies, the runtime creates it with the first container.
func (m *Manager) Ensure(ctx context.Context, p *v1.Pod, l allocated.Limits) error {
	return named(p, m.ensure(ctx, p, l))
}

// Resize changes the limits of the pod's existing group to l (KEP-1287). The limits of containers must never exceed the
// pod's; cgroup v1 refuses this for CPU. So a caller has to raise the pod's limit before those of containers, and to
// lower it after them. If the memory limit is below the pod's usage, Resize fails (unix.EBUSY), even if the rest of l
// can be applied.
func (m *Manager) Resize(ctx context.Context, p *v1.Pod, l allocated.Limits) error {
	return named(p, m.resize(ctx, p, l))
}

func named(p *v1.Pod, err error) error {
	if err != nil {
		return fmt.Errorf("cgroup of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func (m *Manager) ensure(ctx context.Context, p *v1.Pod, lim allocated.Limits) error {
	if err := safeopen.Check("pod UID", string(p.UID)); err != nil {
		return err
	}
	l, err := m.usable(ctx)
	if err != nil {
		return err
	}
	if err := m.ensureQoSCgroups(ctx, l); err != nil {
		return err
	}
	err = m.makePod(ctx, l, p, lim)
	if errors.Is(err, unix.ENOENT) {
		// The QoS cgroups were removed: create them again, once.
		m.forgetQoSCgroups()
		if err = m.ensureQoSCgroups(ctx, l); err == nil {
			err = m.makePod(ctx, l, p, lim)
		}
	}
	return err
}

func (m *Manager) resize(ctx context.Context, p *v1.Pod, lim allocated.Limits) error {
	if err := safeopen.Check("pod UID", string(p.UID)); err != nil {
		return err
	}
	l, err := m.usable(ctx)
	if err != nil {
		return err
	}
	return m.allow(ctx, l, p, lim)
}

// usable returns the hierarchies, unless ctx has ended. Every operation starts with it.
func (m *Manager) usable(ctx context.Context) (hierarchies, error) {
	if err := ctx.Err(); err != nil {
		return hierarchies{}, err
	}
	return m.hierarchies()
}

func (m *Manager) makePod(ctx context.Context, l hierarchies, p *v1.Pod, lim allocated.Limits) error {
	class := spec.QOSClass(p)
	made, err := m.maker.pod(ctx, l, m.Group(p), m.rulesOfNew(l).Pod(class, lim, hugePages(p)))
	if err != nil {
		return err
	}
	if made {
		return m.count(ctx, l, p.UID, class, lim)
	}
	return m.allow(ctx, l, p, lim)
}

// allow sets the limits of the pod's group, and adds its requests to its QoS cgroup.
func (m *Manager) allow(ctx context.Context, l hierarchies, p *v1.Pod, lim allocated.Limits) error {
	name := m.Group(p)
	if err := l.refuseBelowUsage(name, lim.MemoryLimit); err != nil {
		return err
	}
	class := spec.QOSClass(p)
	if err := m.maker.set(ctx, l, name, m.rules(l).Pod(class, lim, hugePages(p))); err != nil {
		return err
	}
	return m.count(ctx, l, p.UID, class, lim)
}
