// Package cgroup makes the tree of cgroups for pods, and the limits of each pod
// as a whole. The tree is the kubelet's (Kubernetes design proposal "pod-resource-management"),
// as directories or as systemd's transient slices:
//
//	kubepods/pod<UID>             Guaranteed pods
//	kubepods/burstable/pod<UID>
//	kubepods/besteffort/pod<UID>
//	kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod<UID>.slice
//
// The runtime makes the groups of containers below a pod's.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
)

// Config says where and how pod groups are made.
type Config struct {
	// Driver is how groups are named and made; empty counts as cgroupfs.
	Driver Driver
	// CgroupRoot is the group that kubepods is in; empty counts as "/". It is made if missing.
	CgroupRoot string
	// NoCPUQuota leaves CPU limits unenforced on pods (KubeletConfiguration cpuCFSQuota: false).
	NoCPUQuota bool
	// CPUPeriod is the CFS period (KubeletConfiguration cpuCFSQuotaPeriod); 0 counts as 100 ms.
	CPUPeriod time.Duration
	// PIDsLimit is how many processes a pod may have (KubeletConfiguration
	// podPidsLimit); any number if it isn't above 0. No pod gets more than the node has.
	PIDsLimit int64
	// Swap is how much swap pods may share (memorySwap.swapBehavior LimitedSwap), in
	// bytes; 0 is for NoSwap. Without cgroup v2 it counts as 0 (KEP-2400).
	Swap int64
	// Memory is what the node has of it, in bytes: pods get Swap in proportion.
	Memory int64
	// ReserveMemory protects what pods request from reclaim (memoryReservationPolicy
	// TieredReservation, with the feature gate MemoryQoS; KEP-2570). It needs cgroup v2.
	// With a CgroupRoot the groups around kubepods have to protect as much themselves.
	ReserveMemory bool
	// QOSReserve keeps memory from pods of lower QoS classes (qosReserved, with the feature gate QOSReserved); nil
	// keeps none.
	QOSReserve *QOSReserve
	// Own and System are the groups that the agent and the host's other processes belong in (kubeletCgroups,
	// systemCgroups); empty leaves them where they are.
	Own, System string
	// Pods is what all pods may have together (enforceNodeAllocatable pods); nil is no limit.
	Pods *Share
	// Reserved are the host's own groups that are held to a share (system-reserved, kube-reserved).
	Reserved []Reserved
}

// Manager makes and removes pods' groups. It is safe for concurrent use, for one
// pod by one caller at a time.
type Manager struct {
	conf   Config
	log    logr.Logger
	maker  maker
	layout func() (layout, error)
	kernel func() kernel

	mu sync.Mutex
	// made says that the QoS cgroups have been made, enforced that all pods are held to their share; unenforced is why
	// they weren't, as it was logged.
	made, enforced bool
	// enforces says that the driver is known, and the host's own groups are held to their shares.
	enforces   bool
	unenforced string
	// requested is what pods request that the QoS cgroups have to have: they get the sums.
	requested map[types.UID]sums
	written   sums // the QoS cgroups' as last written
	// limits are the memory that the QoS cgroups may use, by their names, as last written.
	limits map[string]int64
}

// New makes a manager. It looks at nothing before it is used.
func New(c Config, log logr.Logger) *Manager {
	if c.Driver == "" {
		c.Driver = DriverCgroupfs
	}
	if c.CPUPeriod == 0 {
		c.CPUPeriod = 100 * time.Millisecond
	}
	c.CgroupRoot = path.Clean("/" + c.CgroupRoot)
	m := &Manager{conf: c, log: log, maker: makerOf(c.Driver), requested: map[types.UID]sums{},
		limits: map[string]int64{}}
	m.layout = sync.OnceValues(m.find)
	m.kernel = sync.OnceValue(readKernel)
	return m
}

// UseDriver has groups made by this driver, whatever the configuration says: the
// runtime's driver takes precedence (KEP-4033). It has to be called before all but Limit.
func (m *Manager) UseDriver(d Driver) {
	if d == m.conf.Driver {
		return
	}
	m.maker.close()
	m.conf.Driver, m.maker = d, makerOf(d)
}

// Check returns in one line what is missing on this host, or nil.
func (m *Manager) Check() error {
	if err := m.maker.check(); err != nil {
		return fmt.Errorf("cgroupDriver %q can't be used: %w; set cgroupDriver: %s, and the runtime's to the same",
			m.conf.Driver, err, DriverCgroupfs)
	}
	l, err := m.layout()
	if err != nil {
		return err
	}
	return l.check()
}

// Close ends the connection to systemd, if there is one: nothing can be made or
// changed after that.
func (m *Manager) Close() { m.maker.close() }

// CgroupParent is the pod's group, for the runtime to make the sandbox's and the
// containers' groups in, in the form of the driver (CRI
// LinuxPodSandboxConfig.cgroup_parent): a path, or the last slice's name.
func (m *Manager) CgroupParent(p *v1.Pod) string {
	return m.conf.Driver.forRuntime(m.group(p))
}

// group is the name of the pod's group.
func (m *Manager) group(p *v1.Pod) string { return m.name(spec.QOSClass(p), p.UID) }

// Ensure makes the pod's group and has it allow what l says. It may be called
// again, and then is Resize.
//
// It does no more than it must: only the cpu and memory groups are made here,
// the other cgroup v1 controllers' come into being with the first container.
func (m *Manager) Ensure(ctx context.Context, p *v1.Pod, l allocated.Limits) error {
	return named(p, m.ensure(ctx, p, l))
}

// Resize has the pod's group, which has to be there, allow what l says (KEP-1287).
// Limits of the pod's containers must never be above the pod's, which cgroup v1
// refuses for CPU: raise the pod first, and lower it last. A memory limit below
// what the pod uses is refused (unix.EBUSY), whatever else l says.
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
		// The QoS cgroups were removed: make them again, once.
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

// usable is what every operation needs first.
func (m *Manager) usable(ctx context.Context) (layout, error) {
	if err := ctx.Err(); err != nil {
		return layout{}, err
	}
	return m.layout()
}

func (m *Manager) makePod(ctx context.Context, l layout, p *v1.Pod, lim allocated.Limits) error {
	class := spec.QOSClass(p)
	made, err := m.maker.pod(ctx, l, m.group(p), m.rulesOfNew(l).Pod(class, lim, hugePages(p)))
	if err != nil {
		return err
	}
	if made {
		return m.count(ctx, l, p.UID, class, lim)
	}
	return m.allow(ctx, l, p, lim)
}

// allow sets the limits of the pod's group, and its part of its QoS cgroup's weight.
func (m *Manager) allow(ctx context.Context, l layout, p *v1.Pod, lim allocated.Limits) error {
	name := m.group(p)
	if err := l.refuseBelowUsage(name, lim.MemoryLimit); err != nil {
		return err
	}
	class := spec.QOSClass(p)
	if err := m.maker.set(ctx, l, name, m.rules(l).Pod(class, lim, hugePages(p))); err != nil {
		return err
	}
	return m.count(ctx, l, p.UID, class, lim)
}
