// Package resources is the container manager: it keeps the tree of control
// groups that pods live in, and the limits a pod as a whole has there.
//
// The tree is the kubelet's (Kubernetes design proposal "pod-resource-management"):
//
//	kubepods/pod<UID>             Guaranteed pods
//	kubepods/burstable/pod<UID>
//	kubepods/besteffort/pod<UID>
//
// Containers' own groups below a pod's are the runtime's business.
package resources

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/opencontainers/cgroups"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cpuunits"
	"github.com/deckhand-node/deckhand/internal/pathelement"
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
}

// Manager makes and removes pods' groups. It is safe for concurrent use, for one
// pod by one caller at a time.
type Manager struct {
	conf   Config
	log    logr.Logger
	layout func() (layout, error)

	mu sync.Mutex
	// tiers says that the folders above the pods have been made.
	tiers bool
	// burstable is what each Burstable pod asks for, in thousandths of a CPU: the
	// tier's weight is their sum.
	burstable map[types.UID]int64
	written   int64 // the tier's CPU shares as last written
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
	return &Manager{
		conf:      c,
		log:       log,
		layout:    sync.OnceValues(findLayout),
		burstable: map[types.UID]int64{},
	}
}

// Check tells in one line what this host lacks, or nil.
func (m *Manager) Check() error {
	if m.conf.Driver != DriverCgroupfs {
		return fmt.Errorf("cgroupDriver %q is not supported by this build: use %q", m.conf.Driver, DriverCgroupfs)
	}
	l, err := m.layout()
	if err != nil {
		return err
	}
	return l.check()
}

// CgroupParent is the name of the pod's group, for the runtime to make the
// sandbox's and the containers' groups in.
func (m *Manager) CgroupParent(p *v1.Pod) string {
	return m.name(QOSClass(p), p.UID)
}

// Ensure makes the pod's group and sets what holds for the pod as a whole. It
// may be called again.
//
// It does no more than it must: only the cpu and memory groups are made here,
// the other cgroup v1 controllers' come into being with the first container.
func (m *Manager) Ensure(ctx context.Context, p *v1.Pod) error {
	if err := m.ensure(ctx, p); err != nil {
		return fmt.Errorf("cgroup of pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

func (m *Manager) ensure(ctx context.Context, p *v1.Pod) error {
	if err := pathelement.Check("pod UID", string(p.UID)); err != nil {
		return err
	}
	l, err := m.usable(ctx)
	if err != nil {
		return err
	}
	if err := m.ensureTiers(l); err != nil {
		return err
	}
	name, lim := m.CgroupParent(p), limitsOf(p)
	err = m.makePod(l, name, lim)
	if errors.Is(err, unix.ENOENT) {
		// Somebody removed the groups above: make them again, once.
		m.forgetTiers()
		if err = m.ensureTiers(l); err == nil {
			err = m.makePod(l, name, lim)
		}
	}
	if err != nil || QOSClass(p) != v1.PodQOSBurstable {
		return err
	}
	return m.weigh(l, func() { m.burstable[p.UID] = lim.milliCPU })
}

// usable is what every operation needs first.
func (m *Manager) usable(ctx context.Context) (layout, error) {
	if err := ctx.Err(); err != nil {
		return layout{}, err
	}
	if m.conf.Driver != DriverCgroupfs {
		return layout{}, m.Check()
	}
	return m.layout()
}

func (m *Manager) makePod(l layout, name string, lim limits) error {
	for _, mount := range l.limited() {
		if err := makeGroup(filepath.Join(mount, name)); err != nil {
			return err
		}
	}
	return write(l, name, lim.settings(l.v2, m.conf))
}

// weigh changes what the Burstable tier is made of and sets its weight to match.
func (m *Manager) weigh(l layout, change func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	var sum int64
	for _, milli := range m.burstable {
		sum += milli
	}
	shares := cpuunits.Shares(sum)
	if shares == m.written {
		return nil
	}
	if err := write(l, m.tier(v1.PodQOSBurstable), []setting{sharesSetting(l.v2, shares)}); err != nil {
		return fmt.Errorf("weight of the Burstable tier: %w", err)
	}
	m.written = shares
	return nil
}

// write sets values in the named group.
func write(l layout, name string, settings []setting) error {
	for _, s := range settings {
		dir := filepath.Join(l.mounts[s.controller], name)
		if err := cgroups.WriteFile(dir, s.file, s.value); err != nil {
			return fmt.Errorf("set %s to %s in %s: %w", s.file, s.value, dir, err)
		}
	}
	return nil
}
