// Package assign is the only writer of which containers have CPUs to themselves (the CPU manager of
// https://kubernetes.io/docs/tasks/administer-cluster/cpu-management-policies/, KEP-3570). With the policy static,
// containers of Guaranteed pods that request whole CPUs get CPUs that no other container runs on; all other containers
// share the rest. The rest shrinks before such a container starts, and grows after it has ended.
//
// Assignments are in the kubelet's file cpu_manager_state. The file is evidence, never a condition: running containers
// keep the CPUs that their cgroups say, whatever the file, the policy and the machine were before.
package assign

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/cpuset"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/host/topology"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/spec"
	"github.com/deckhand-node/deckhand/internal/resources/assign/cpu"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// Config configures a Manager. All fields are required, except Writes.
type Config struct {
	// Dir is the agent's root directory.
	Dir string
	Policy
	// Machine reads the present state of the machine's CPUs.
	Machine func() (topology.Machine, error)
	// Pod returns a pod that should run, with its allocated requests; nil if it shouldn't run. Known reports whether a
	// pod should run, or anything is left of it. Neither may wait for the Manager.
	Pod   func(types.UID) *v1.Pod
	Known func(types.UID) bool
	// Observed returns the runtime's state of all pods. It is complete, and cgroups can be found, once Ready is closed.
	Observed func() []*pod.Observed
	Ready    <-chan struct{}
	// Shared returns the resources of a container that shares CPUs: its limit is in force again.
	Shared  func(*v1.Pod, *v1.Container) *runtimeapi.LinuxContainerResources
	Runtime Runtime
	Cgroups Cgroups
	Meter   Meter
	Events  Events
	// Freed is called when CPUs of pods have become free that nobody released. It must not wait for the Manager.
	Freed func()
	// Writes follows writes of the file.
	Writes *room.Writes
	Log    logr.Logger
}

// Policy says which containers get CPUs to themselves.
type Policy struct {
	// Static is cpuManagerPolicy static. Otherwise no container gets CPUs.
	Static bool
	// Reserved returns the CPUs of a machine that no container has to itself: reservedSystemCPUs, or as many as
	// kubeReserved and systemReserved ask for.
	Reserved func(*topology.Machine) cpuset.CPUSet
	cpu.Policy
	// KeepQuota says that containers keep their CPU limit although their CPUs are their own (the gate
	// DisableCPUQuotaWithExclusiveCPUs is off).
	KeepQuota bool
	// Patient says that a pod waits if it doesn't fit: outside a cluster nobody would create it again.
	Patient bool
}

// Runtime changes running containers.
type Runtime interface {
	UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error
}

// Cgroups reads and writes the CPUs of a container's cgroup. The error is fs.ErrNotExist if the container has none.
type Cgroups interface {
	CPUs(ctx context.Context, pod types.UID, container string) (cpuset.CPUSet, error)
	SetCPUs(ctx context.Context, pod types.UID, container string, set cpuset.CPUSet) error
}

// Events records events of the node.
type Events interface {
	NodeEvent(eventType string, reason pod.Reason, message string)
}

// Meter counts assignments. It must not wait for the Manager.
type Meter interface {
	// Pinned is called for each container that was to get CPUs to itself.
	Pinned(failed bool)
	// CPUs is called with the number of shared CPUs that aren't reserved, and of those that containers have to
	// themselves, by NUMA node.
	CPUs(shared int, exclusive map[int]int)
	// Replanned is called for each Difference, with its Kind.
	Replanned(difference string)
	// Aligned is called for each container with CPUs of its own, with whether they are aligned to the boundary
	// ("physical_cpu", "uncore_cache").
	Aligned(boundary string, ok bool)
}

// Manager assigns CPUs. It is safe for concurrent use.
type Manager struct {
	conf Config
	// shrunk wakes Run to move containers at once, grown to move them soon.
	shrunk, grown wake.Slot
	// adopted is closed after the CPUs of running containers were read.
	adopted chan struct{}
	// assigning is held while CPUs are chosen and recorded.
	assigning sync.Mutex
	// writing is held while the file is written.
	writing sync.Mutex

	mu sync.Mutex
	// undoes says that the policy is none, and that containers have CPUs to themselves nevertheless.
	undoes   bool
	machine  topology.Machine
	reserved cpuset.CPUSet
	// of are the CPUs of containers, by pod and name.
	of map[types.UID]map[string]cpuset.CPUSet
	// pods are CPUs of pods as a whole, which a kubelet has given them (its alpha gate PodLevelResourceManagers). A pod
	// keeps them while it runs: its containers without CPUs of their own share them.
	pods map[types.UID]cpuset.CPUSet
	// byID are CPUs in a file of Kubernetes before 1.18, by the ID of the container.
	byID map[string]cpuset.CPUSet
	// unrestored says that the file couldn't be read yet.
	unrestored bool
	// alone says that no change by an earlier agent can follow any more.
	alone bool
	// waiting says that a container is created, and was neither started nor removed.
	waiting bool
	// created are the CPUs that a container's next instance was created with; instances are those that run or start, by
	// ID.
	created   map[owner]cpuset.CPUSet
	instances map[string]*instance
	// pool are the shared CPUs of the last round.
	pool cpuset.CPUSet
	// moved is closed and replaced when instances have got other CPUs, or have ended.
	moved chan struct{}
	// differences are those that this agent has found.
	differences []Difference
}

// owner is a container of a pod.
type owner struct {
	uid  types.UID
	name string
}

// New returns a Manager. Restore has to be called first.
func New(c Config) *Manager {
	return &Manager{conf: c, shrunk: wake.NewSlot(), grown: wake.NewSlot(), adopted: make(chan struct{}),
		of: map[types.UID]map[string]cpuset.CPUSet{}, pods: map[types.UID]cpuset.CPUSet{},
		created: map[owner]cpuset.CPUSet{}, instances: map[string]*instance{}, moved: make(chan struct{})}
}

// active reports whether the Manager has anything to do.
func (m *Manager) active() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.conf.Static || m.undoes || m.unrestored
}

// isAdopted reports whether the CPUs of running containers were read.
func (m *Manager) isAdopted() bool {
	select {
	case <-m.adopted:
		return true
	default:
		return false
	}
}

// await waits until the CPUs of running containers were read.
func (m *Manager) await(ctx context.Context) error {
	select {
	case <-m.adopted:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Assign chooses CPUs for the pod's containers, and records them. The error is a *pod.Failure with a reason to wait or
// to reject the pod, or the error of a disk write. After an error, the pod's assignment is unchanged.
func (m *Manager) Assign(ctx context.Context, p *v1.Pod) error {
	list := asks(p)
	if !m.conf.Static || len(list) == 0 {
		return nil
	}
	if err := m.await(ctx); err != nil {
		return err
	}
	return m.assign(ctx, p, list, "")
}

// assign chooses CPUs for the pod's containers that have none, or, unless only is empty, other ones for that container.
func (m *Manager) assign(ctx context.Context, p *v1.Pod, list []ask, only string) error {
	m.assigning.Lock()
	defer m.assigning.Unlock()
	dropped := m.dropUnknown(p.UID)
	m.follow(ctx)
	now, err := m.conf.Machine()
	m.mu.Lock()
	before := maps.Clone(m.of[p.UID])
	if delete(m.of[p.UID], only); m.hasAll(p.UID, list) {
		m.mu.Unlock()
		if dropped {
			m.record()
			m.grown.Wake()
		}
		return nil
	}
	if err == nil {
		m.onMachine(now)
		err = m.choose(p.UID, list, only)
	}
	m.mu.Unlock()
	if err == nil {
		err = m.save()
	}
	if err != nil {
		m.mu.Lock()
		m.set(p.UID, nil)
		others := m.exclusive() // adoption may have given away some meanwhile
		maps.DeleteFunc(before, func(_ string, set cpuset.CPUSet) bool { return !set.Intersection(others).IsEmpty() })
		m.set(p.UID, before)
		m.mu.Unlock()
	}
	for _, a := range list {
		if only == "" || a.container == only {
			m.conf.Meter.Pinned(err != nil)
		}
	}
	if err == nil {
		m.countAligned(p.UID)
		m.shrunk.Wake()
	}
	return err
}

// hasAll reports whether all containers have CPUs. The caller holds the mutex.
func (m *Manager) hasAll(uid types.UID, list []ask) bool {
	return !slices.ContainsFunc(list, func(a ask) bool { _, ok := m.of[uid][a.container]; return !ok })
}

// set replaces the CPUs of a pod's containers. The caller holds the mutex.
func (m *Manager) set(uid types.UID, of map[string]cpuset.CPUSet) {
	if len(of) == 0 {
		delete(m.of, uid)
		return
	}
	m.of[uid] = of
}

// onMachine sets the present state of the machine. The caller holds the mutex.
func (m *Manager) onMachine(now topology.Machine) {
	if m.machine = now; m.conf.Static {
		m.reserved = m.conf.Reserved(&now)
	}
}

// dropUnknown frees the CPUs of pods that shouldn't run and have nothing left in the runtime, except those of one pod.
// A kubelet's file contains such pods until the kubelet needs their CPUs. It reports whether there were any.
func (m *Manager) dropUnknown(but types.UID) (dropped bool) {
	m.mu.Lock()
	uids := slices.AppendSeq(slices.Collect(maps.Keys(m.of)), maps.Keys(m.pods))
	m.mu.Unlock()
	for _, uid := range uids {
		if uid != but && !m.conf.Known(uid) {
			m.mu.Lock()
			delete(m.of, uid)
			delete(m.pods, uid)
			m.mu.Unlock()
			dropped = true
		}
	}
	if dropped {
		m.conf.Freed()
	}
	return dropped
}

// Awaits returns nil: no plugin has to register.
func (m *Manager) Awaits(*v1.Pod) *pod.Failure { return nil }

// Release frees the CPUs of a pod. If that can't be recorded, they are free all the same: after a restart, the agent
// will find that the pod doesn't exist.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	had := len(m.of[uid]) > 0 || !m.pods[uid].IsEmpty()
	delete(m.of, uid)
	delete(m.pods, uid)
	maps.DeleteFunc(m.created, func(o owner, _ cpuset.CPUSet) bool { return o.uid == uid })
	m.mu.Unlock()
	if !had || !m.isAdopted() { // adopt records the rest
		return
	}
	if err := m.save(); err != nil {
		m.conf.Log.Error(err, "The CPUs of a pod that has ended are free, but recorded as its own", "podUID", uid)
	}
	m.grown.Wake()
}

// Fixes returns why the CPU of a Guaranteed pod can't be resized (the gate InPlacePodVerticalScalingExclusiveCPUs is
// alpha).
func (m *Manager) Fixes(p *v1.Pod, had, asks *pod.Allocation) (why, detail string) {
	if !m.conf.Static || spec.QOSClass(p) != v1.PodQOSGuaranteed {
		return "", ""
	}
	for name, next := range asks.Containers {
		if last := had.Containers[name]; next.Requests.Cpu().Cmp(*last.Requests.Cpu()) != 0 ||
			next.Limits.Cpu().Cmp(*last.Limits.Cpu()) != 0 {
			return `Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"`,
				"guaranteed_pod_cpu_manager_static_policy"
		}
	}
	return "", ""
}

// Unallocatable returns nothing: CPUs that went offline aren't part of the node's capacity either.
func (m *Manager) Unallocatable() map[v1.ResourceName]int64 { return nil }

// PreStart does nothing: Starting follows.
func (m *Manager) PreStart(context.Context, *v1.Pod, *v1.Container) error { return nil }

// Health returns nothing: CPUs have no health.
func (m *Manager) Health(types.UID) map[string][]v1.ResourceStatus { return nil }

// Provide adds the container's CPUs, its own or the shared ones, to the configuration of its instances. For CPUs of its
// own, it waits until no other container runs on them.
func (m *Manager) Provide(ctx context.Context, p *v1.Pod, c *v1.Container, to *translate.Devices) error {
	if !m.conf.Static {
		return nil
	}
	if err := m.await(ctx); err != nil {
		return err
	}
	m.follow(ctx)
	of := owner{p.UID, c.Name}
	list := asks(p)
	for {
		for _, a := range list {
			if a.container != c.Name || m.usable(of, a.count) {
				continue
			}
			if err := m.replan(ctx, p, c.Name); err != nil {
				return err
			}
		}
		own := m.Own(p.UID, c.Name)
		if !own.IsEmpty() {
			if err := m.clear(ctx, of, own); err != nil {
				return err
			}
		}
		m.mu.Lock()
		if m.of[p.UID][c.Name].Equals(own) { // it may have changed meanwhile
			set := m.wanted(p.UID, c.Name)
			m.created[of] = set
			m.mu.Unlock()
			to.Assignment = translate.Assignment{CPUs: set.String(), Mems: to.Assignment.Mems,
				NoQuota: !own.IsEmpty() && !m.conf.KeepQuota}
			return nil
		}
		m.mu.Unlock()
	}
}

// Own returns the CPUs that a container has to itself; none for others.
func (m *Manager) Own(uid types.UID, container string) cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.of[uid][container]
}

// Unthrottled reports whether a container of the pod is to have CPUs to itself without a limit: then the pod has none
// either.
func (m *Manager) Unthrottled(p *v1.Pod) bool {
	return m.conf.Static && !m.conf.KeepQuota && len(asks(p)) > 0
}

// wanted returns the CPUs that a container should run on. The caller holds the mutex.
func (m *Manager) wanted(uid types.UID, container string) cpuset.CPUSet {
	if set, ok := m.of[uid][container]; ok && m.conf.Static {
		return set
	}
	if set := m.pods[uid]; !set.IsEmpty() && m.conf.Static {
		own := cpuset.New()
		for _, of := range m.of[uid] {
			own = own.Union(of)
		}
		if rest := set.Difference(own); !rest.IsEmpty() {
			return rest
		}
	}
	return m.shared()
}

// usable reports whether a container can start with the CPUs that it has: none of them is reserved or offline, or an
// instance runs on them.
func (m *Manager) usable(of owner, count int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	set := m.of[of.uid][of.name]
	return set.Size() == count && set.IsSubsetOf(m.machine.Online().Difference(m.reserved)) || m.runs(of)
}

// replan chooses other CPUs for a container of an admitted pod. If there are none, the container shares CPUs: an
// admitted pod isn't rejected.
func (m *Manager) replan(ctx context.Context, p *v1.Pod, container string) error {
	err := m.assign(ctx, p, asks(p), container)
	f, ok := err.(*pod.Failure)
	if !ok {
		return err
	}
	m.conf.Log.Info("A container shares CPUs, as there are none that it could have to itself", "podUID", p.UID,
		"containerName", container, "err", f.Message)
	m.mu.Lock()
	of := m.of[p.UID]
	delete(of, container)
	m.set(p.UID, of)
	m.mu.Unlock()
	return m.save()
}

// Allocatable returns the CPUs that containers can have to themselves, in use or not.
func (m *Manager) Allocatable() cpuset.CPUSet {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.conf.Static {
		return cpuset.New()
	}
	return m.machine.Online().Difference(m.reserved)
}

// count passes the numbers of CPUs to the meter. The caller holds the mutex.
func (m *Manager) count() {
	exclusive := m.exclusive()
	byNode := map[int]int{}
	for _, n := range m.machine.Nodes {
		byNode[n.ID] = 0
	}
	for _, c := range m.machine.CPUs {
		if exclusive.Contains(c.ID) {
			byNode[c.Node]++
		}
	}
	m.conf.Meter.CPUs(m.shared().Difference(m.reserved).Size(), byNode)
}

// countAligned passes to the meter whether a pod's CPUs are aligned.
func (m *Manager) countAligned(added types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, set := range m.of[added] {
		m.conf.Meter.Aligned("physical_cpu", cpu.WholeCores(&m.machine, set).Equals(set))
		if m.conf.ByCache {
			m.conf.Meter.Aligned("uncore_cache", caches(&m.machine, set) == 1)
		}
	}
}

// caches returns how many last-level caches CPUs have.
func caches(m *topology.Machine, set cpuset.CPUSet) int {
	of := map[int]bool{}
	for _, c := range m.CPUs {
		if set.Contains(c.ID) {
			of[c.Cache] = true
		}
	}
	return len(of)
}
