// Package devices is the only writer of the assignments of devices to containers. Device plugins register with it and
// list their devices. It assigns these to the containers of a pod before the pod is admitted, and calls the plugins'
// Allocate (https://kubernetes.io/docs/concepts/extend-kubernetes/compute-storage-net/device-plugins/,
// k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1). Assignments are on disk before the pod is admitted, and stay valid
// if the plugin ends.
package devices

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

// Config configures a Manager. All fields are required, except Writes.
type Config struct {
	// Dir is the directory of the registration socket, of the plugins' sockets and of the record. Only root can write
	// to it.
	Dir string
	// BootID identifies this boot of the machine: plugins have to allocate again after a reboot.
	BootID string
	// Known reports whether a pod should run, or anything is left of it. It must not wait for the Manager.
	Known func(types.UID) bool
	// Wake is called when the health of a pod's devices may have changed. It must not wait for the Manager.
	Wake  func(types.UID)
	Meter Meter
	// Writes follows writes of the record.
	Writes *room.Writes
	Log    logr.Logger
}

// Meter counts calls of plugins. It must not wait for the Manager.
type Meter interface {
	// Registered is called for each accepted registration, Allocated with the duration of each call of Allocate.
	Registered(resource string)
	Allocated(resource string, took time.Duration)
}

// limits are the timeouts for calls of plugins, and the times for which absent plugins are awaited.
type limits struct {
	// ask is for GetDevicePluginOptions and GetPreferredAllocation.
	ask, allocate, prestart time.Duration
	// list is the time after which it is logged that a plugin hasn't listed its devices.
	list time.Duration
	// absent is how long a resource keeps its capacity after its plugin ended. restarted is how long after a start of
	// the agent a resource keeps its capacity if its plugin doesn't register.
	absent, restarted time.Duration
}

// Manager assigns devices. It is safe for concurrent use.
type Manager struct {
	conf   Config
	limits limits
	// connected passes new plugins to Run. look wakes Run to check for expired resources.
	connected chan *plugin
	look      wake.Slot
	// changed notifies AwaitChange, affected are the pods to wake, and relisted triggers writing the record because
	// plugins' lists have changed. Each of the three is processed at most once in gap.
	changed  wake.Debounce
	affected *wake.Keyed[types.UID]
	relisted wake.Slot
	// ended is closed when Run ends.
	ended chan struct{}

	// writing is held while the record is written.
	writing sync.Mutex

	mu        sync.RWMutex
	resources map[string]*resourceState
	// followed are the plugins from which the Manager receives lists.
	followed map[*plugin]bool
	pods     map[types.UID]*podDevices
	// forgotten is when this agent or an earlier one found an unreadable record; zero if none did. Such a record also
	// contained the names of the resources with plugins.
	forgotten time.Time
}

// resourceState is the state of one resource.
type resourceState struct {
	// plugin is nil until a plugin has listed its devices, and after it ended.
	plugin *plugin
	// devices are the devices that the plugin listed last, by ID.
	devices map[string]*api.Device
	// prestart means that the plugin requires PreStartContainer, even while it is absent.
	prestart bool
	// until is the time until which the devices count although the plugin is absent; gone means that this time is
	// over.
	until time.Time
	gone  bool
}

// podDevices are the devices of one pod. The manager's mutex guards all fields but assigning.
type podDevices struct {
	// assigning is held while devices are chosen and plugins called.
	assigning sync.Mutex
	// containers are the devices assigned to each container.
	containers assignment
	// beside is another assignment whose devices are unavailable to other pods. While the next assignment is being
	// made, it is the next one; once that is complete, it is the previous one until the next one is recorded.
	beside assignment
	// complete means that containers is an assignment for which all plugins have responded.
	complete bool
	// earlier is the boot in which the plugins responded, if it isn't this boot: plugins have to allocate again, and
	// may get other devices.
	earlier string
}

// assignment contains devices by container and resource.
type assignment map[string]map[string]*holding

// holding are a container's devices of one resource.
type holding struct {
	// ids are sorted; byNode are the same IDs by NUMA node.
	ids    []string
	byNode map[int64][]string
	// answer is the plugin's response to Allocate; nil before the response.
	answer *api.ContainerAllocateResponse
}

// unknownBoot replaces the boot ID of an unreadable entry.
const unknownBoot = "unknown"

// New returns a Manager. Restore has to be called first.
func New(c Config) *Manager {
	return &Manager{conf: c,
		limits: limits{ask: 10 * time.Second, allocate: time.Minute,
			prestart: api.KubeletPreStartContainerRPCTimeoutInSecs * time.Second, list: time.Minute,
			absent: 5 * time.Minute, restarted: time.Minute},
		connected: make(chan *plugin), look: wake.NewSlot(), changed: wake.NewDebounce(gap),
		affected: wake.NewKeyed[types.UID](), relisted: wake.NewSlot(), ended: make(chan struct{}),
		resources: map[string]*resourceState{}, followed: map[*plugin]bool{}, pods: map[types.UID]*podDevices{}}
}

// Restore reads the assignments of an earlier agent or kubelet. The resources have no plugins until these register
// again.
func (m *Manager) Restore() error {
	r, err := read(m.conf.Dir)
	switch {
	case r == nil && err == nil:
		return nil
	case r == nil: // the file stays: it may be readable later
		return errors.Join(err, m.restore(&record{Forgotten: time.Now()}))
	case err != nil: // save the empty record, in case the agent restarts before the plugins have registered
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
				"the record of pod %s's devices of %s can't be read: Allocate is called again before a container "+
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
		h.ids = slices.Compact(h.ids) // a device may be recorded at several NUMA nodes
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
	defer m.conf.Writes.Track(filepath.Join(m.conf.Dir, file))()
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

// gap is the minimum interval between reactions to plugins' lists: some plugins send new lists all the time.
const gap = 50 * time.Millisecond

// AwaitChange waits until the result of Amounts may have changed since the time looked; it returns false if ctx ended.
// Only one goroutine may call it.
func (m *Manager) AwaitChange(ctx context.Context, looked time.Time) bool {
	return m.changed.Await(ctx, looked, time.Time{})
}

// Amounts are the amounts of resources that have or had a plugin, including devices in use.
type Amounts struct {
	// Capacity counts the devices that the plugin listed last. It is 0 after the plugin was absent for 5 minutes, or if
	// the plugin hasn't registered within a minute after a restart of the agent. Allocatable counts the healthy
	// devices. It is 0 while the plugin is absent.
	Capacity, Allocatable v1.ResourceList
	// Awaited are the resources whose plugin is absent.
	Awaited map[v1.ResourceName]bool
}

// Amounts returns the current amounts of all resources that have or had a plugin.
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

// Unallocatable counts the devices of pods that aren't allocatable any more although their plugin is registered, by
// resource.
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
				counted[name][id] = true // containers of a pod may share a device of an init container
				count[v1.ResourceName(name)]++
			}
		}
	}
	return count
}

// Release frees a pod's devices, and writes the record. If the record can't be written, the devices are free all the
// same: after a restart, the agent will find that the pod doesn't exist.
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
