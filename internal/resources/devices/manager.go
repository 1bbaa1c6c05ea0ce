// Package devices is the one writer of which device each container has: device plugins register with it and list their
// devices, it assigns these to the containers of a pod before that is admitted, and tells the plugin so
// (https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/,
// k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1). Assignments are on disk before the pod is admitted, and stay the pod's
// whatever becomes of the plugin.
package devices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Config is what a Manager is built from. Every field is needed.
type Config struct {
	// Dir is the directory of the socket where plugins register, of their own sockets and of the record. Only root can
	// write to it.
	Dir string
	// BootID names this boot of the machine: what plugins answered in another one doesn't count.
	BootID string
	// Known reports whether a pod should run, or anything is left of it. It must not wait for the Manager.
	Known func(types.UID) bool
	// Wake is called when the health of a device that the pod has may have changed. It must not wait for the Manager.
	Wake  func(types.UID)
	Meter Meter
	Log   logr.Logger
}

// Meter counts what plugins do. It must not wait for the Manager.
type Meter interface {
	// Registered is called for each registration that was accepted, Allocated with the time that a plugin took for
	// Allocate.
	Registered(resource string)
	Allocated(resource string, took time.Duration)
}

// limits are how long things may take.
type limits struct {
	// ask is for GetDevicePluginOptions and GetPreferredAllocation.
	ask, allocate, prestart time.Duration
	// list is how long a plugin may take to list its devices before that is logged.
	list time.Duration
	// absent is for how long the capacity of a resource stays that has no plugin any more, restarted the same for one
	// whose plugin hasn't registered since the agent was started.
	absent, restarted time.Duration
}

// Manager assigns devices. It is safe for concurrent use.
type Manager struct {
	conf   Config
	limits limits
	// connected has plugins for Run to follow, look has it count again.
	connected chan *plugin
	look      wake.Slot
	// changed has the receiver of amounts look again, affected are the pods to wake, relisted has what plugins list
	// recorded: none of it sooner than gap after the time before.
	changed  wake.Debounce
	affected *wake.Keyed[types.UID]
	relisted wake.Slot
	// ended is closed when Run ends.
	ended chan struct{}

	// writing is held while the record is written.
	writing sync.Mutex

	mu        sync.RWMutex
	resources map[string]*resourceState
	// followed are the plugins whose lists are received.
	followed map[*plugin]bool
	pods     map[types.UID]*podDevices
	// forgotten is when a record was found that can't be read, by this agent or one before, and with it which resources
	// have plugins.
	forgotten time.Time
}

// resourceState is what is known of one resource.
type resourceState struct {
	// plugin is nil while there is none that has listed its devices.
	plugin *plugin
	// devices are those that it listed last, by ID.
	devices map[string]*api.Device
	// prestart says that it has to make devices ready before each start, also if it is away.
	prestart bool
	// until is how long its devices count though there is no plugin; gone says that this is over.
	until time.Time
	gone  bool
}

// podDevices is what one pod has. All but assigning is guarded by the manager's mutex.
type podDevices struct {
	// assigning is held while devices are chosen and plugins told.
	assigning sync.Mutex
	// containers have what each has of each resource.
	containers assignment
	// beside is another assignment whose devices others can't have either: the next one until it is complete, then the
	// one before until the next one is recorded.
	beside assignment
	// complete says that containers is an assignment for which all plugins have answered.
	complete bool
	// earlier is the boot in which they did, if it isn't this one: devices may be others, and plugins have to be told
	// again.
	earlier string
}

// assignment is what containers have, by container and resource.
type assignment map[string]map[string]*holding

// holding is what a container has of one resource.
type holding struct {
	// ids are sorted; byNode are the same by NUMA node.
	ids    []string
	byNode map[int64][]string
	// answer is the plugin's; nil until it has answered.
	answer *api.ContainerAllocateResponse
}

// unknownBoot stands for the boot of what can't be read.
const unknownBoot = "unknown"

// New constructs a manager. Restore has to be called first.
func New(c Config) *Manager {
	return &Manager{conf: c,
		limits: limits{ask: 10 * time.Second, allocate: time.Minute,
			prestart: api.KubeletPreStartContainerRPCTimeoutInSecs * time.Second, list: time.Minute,
			absent: 5 * time.Minute, restarted: time.Minute},
		connected: make(chan *plugin), look: wake.NewSlot(), changed: wake.NewDebounce(gap),
		affected: wake.NewKeyed[types.UID](), relisted: wake.NewSlot(), ended: make(chan struct{}),
		resources: map[string]*resourceState{}, followed: map[*plugin]bool{}, pods: map[types.UID]*podDevices{}}
}

// Restore reads what an earlier agent, or a kubelet, assigned. Resources that had plugins have none until these
// register again.
func (m *Manager) Restore() error {
	r, err := read(m.conf.Dir)
	switch {
	case r == nil && err == nil:
		return nil
	case r == nil: // what is on disk stays: it may be readable later
		return errors.Join(err, m.restore(&record{Forgotten: time.Now()}))
	case err != nil: // on disk, for an agent that is started before the plugins are back
		return errors.Join(err, m.restore(r), m.save())
	}
	return m.restore(r)
}

func (m *Manager) restore(r *record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.forgotten = r.Forgotten; m.forgotten.After(now) { // the clock was set back
		m.forgotten = now
	}
	until := now.Add(m.limits.restarted)
	for name, ids := range r.Data.RegisteredDevices {
		s := &resourceState{devices: map[string]*api.Device{}, until: until,
			prestart: slices.Contains(r.PreStart, name)}
		for _, id := range ids {
			s.devices[id] = &api.Device{ID: id}
		}
		m.resources[name] = s
	}
	var errs []error
	var unread []types.UID
	for _, e := range r.Data.PodDeviceEntries {
		answer := &api.ContainerAllocateResponse{}
		if err := proto.Unmarshal(e.AllocResp, answer); err != nil {
			errs = append(errs, fmt.Errorf(
				"the record of what pod %s has of %s can't be read: its plugins are told again before a container "+
					"starts: %w", e.PodUID, e.ResourceName, err))
			unread = append(unread, e.PodUID)
		}
		if m.resources[e.ResourceName] == nil {
			m.resources[e.ResourceName] = &resourceState{devices: map[string]*api.Device{}, until: until}
		}
		p := m.pods[e.PodUID]
		if p == nil {
			p = &podDevices{containers: assignment{}, complete: true, earlier: cmp.Or(r.Earlier[e.PodUID], r.BootID)}
			if p.earlier == m.conf.BootID {
				p.earlier = ""
			}
			m.pods[e.PodUID] = p
		}
		h := &holding{byNode: e.DeviceIDs, answer: answer}
		for _, ids := range e.DeviceIDs {
			h.ids = append(h.ids, ids...)
		}
		slices.Sort(h.ids)
		h.ids = slices.Compact(h.ids) // one is recorded at each of its NUMA nodes
		p.containers.set(e.ContainerName, e.ResourceName, h)
	}
	for _, uid := range unread {
		m.pods[uid].earlier = cmp.Or(m.pods[uid].earlier, unknownBoot)
	}
	return errors.Join(errs...)
}

func (a assignment) set(container, resource string, h *holding) {
	if a[container] == nil {
		a[container] = map[string]*holding{}
	}
	a[container][resource] = h
}

// all yields each holding.
func (a assignment) all(yield func(resource string, h *holding) bool) {
	for _, byResource := range a {
		for name, h := range byResource {
			if !yield(name, h) {
				return
			}
		}
	}
}

// save writes the record.
func (m *Manager) save() error {
	m.writing.Lock()
	defer m.writing.Unlock()
	r, err := m.record()
	if err != nil {
		return err
	}
	return write(m.conf.Dir, r)
}

func (m *Manager) record() (*record, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	r := &record{Data: recordData{PodDeviceEntries: []recordEntry{}, RegisteredDevices: map[string][]string{}},
		BootID: m.conf.BootID, Earlier: map[types.UID]string{}, Forgotten: m.forgotten}
	d := &r.Data
	for _, name := range slices.Sorted(maps.Keys(m.resources)) {
		s := m.resources[name]
		if s.prestart {
			r.PreStart = append(r.PreStart, name)
		}
		if d.RegisteredDevices[name] = slices.Sorted(maps.Keys(s.devices)); s.gone || len(s.devices) == 0 {
			d.RegisteredDevices[name] = []string{}
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(m.pods)) {
		p := m.pods[uid]
		if !p.complete {
			continue
		}
		if p.earlier != "" {
			r.Earlier[uid] = p.earlier
		}
		for _, container := range slices.Sorted(maps.Keys(p.containers)) {
			for _, name := range slices.Sorted(maps.Keys(p.containers[container])) {
				h := p.containers[container][name]
				answer, err := proto.MarshalOptions{Deterministic: true}.Marshal(h.answer)
				if err != nil {
					return nil, fmt.Errorf("record what pod %s has of %s: %w", uid, name, err)
				}
				d.PodDeviceEntries = append(d.PodDeviceEntries,
					recordEntry{PodUID: uid, ContainerName: container, ResourceName: name, DeviceIDs: h.byNode,
						AllocResp: append([]byte{}, answer...)})
			}
		}
	}
	return r, nil
}

// gap is how much time there is at least between two looks at what plugins list, some of which list others all the
// time.
const gap = 50 * time.Millisecond

// AwaitChange waits until Amounts may have changed since they were looked at, at that time; it is false if ctx ended.
// It is for one caller.
func (m *Manager) AwaitChange(ctx context.Context, looked time.Time) bool {
	return m.changed.Await(ctx, looked, time.Time{})
}

// Amounts are how much there is of resources that have, or had, a plugin. What pods have is part of it.
type Amounts struct {
	// Capacity counts the devices that the plugin listed last, and nothing once it was away for 5 minutes, or hasn't
	// registered for a minute with a new agent; Allocatable those that are healthy, and nothing while it is away.
	Capacity, Allocatable v1.ResourceList
	// Awaited are those whose plugin is away.
	Awaited map[v1.ResourceName]bool
}

// Amounts are those of the moment.
func (m *Manager) Amounts() Amounts {
	m.mu.RLock()
	defer m.mu.RUnlock()
	a := Amounts{v1.ResourceList{}, v1.ResourceList{}, map[v1.ResourceName]bool{}}
	for name, s := range m.resources {
		all, healthy := int64(len(s.devices)), int64(0)
		if s.gone {
			all = 0
		}
		for _, d := range s.devices {
			if s.plugin != nil && d.GetHealth() == api.Healthy {
				healthy++
			}
		}
		if s.plugin == nil {
			a.Awaited[v1.ResourceName(name)] = true
		}
		a.Capacity[v1.ResourceName(name)] = *resource.NewQuantity(all, resource.DecimalSI)
		a.Allocatable[v1.ResourceName(name)] = *resource.NewQuantity(healthy, resource.DecimalSI)
	}
	return a
}

// Unallocatable counts the devices that pods have and that don't count as allocatable though their plugin is there.
func (m *Manager) Unallocatable() map[v1.ResourceName]int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	count, counted := map[v1.ResourceName]int64{}, map[string]map[string]bool{}
	for _, p := range m.pods {
		for name, h := range p.containers.all {
			s := m.resources[name]
			if s == nil || s.plugin == nil {
				continue
			}
			for _, id := range h.ids {
				if s.devices[id].GetHealth() == api.Healthy || counted[name][id] {
					continue
				}
				if counted[name] == nil {
					counted[name] = map[string]bool{}
				}
				counted[name][id] = true // an init container's are others' of its pod, too
				count[v1.ResourceName(name)]++
			}
		}
	}
	return count
}

// Release takes from a pod what it has. What it had is free for others once that is on disk, or at once if it can't be
// written: then an agent that is started later finds out that there is no such pod.
func (m *Manager) Release(uid types.UID) {
	m.mu.Lock()
	p := m.pods[uid]
	delete(m.pods, uid)
	m.mu.Unlock()
	if p == nil || !p.complete {
		return
	}
	if err := m.save(); err != nil {
		m.conf.Log.Error(err, "The devices of a pod that has ended are free, but recorded as its own", "podUID", uid)
	}
}
