package devices

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// need is a container's request for devices of one resource.
type need struct {
	container, resource string
	count               int
	// reusable means that later containers may reuse the devices: the container is an init container, which ends before
	// they start.
	reusable bool
}

// needs returns the requests of a pod, in the order in which its containers start, for resources that have or had a
// plugin. The caller holds the manager's mutex.
func (m *Manager) needs(p *v1.Pod) (list []need) {
	add := func(c *v1.Container, reusable bool) {
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
			count := c.Resources.Limits[name]
			if m.resources[string(name)] != nil && count.Sign() > 0 {
				list = append(list, need{c.Name, string(name), int(count.Value()), reusable})
			}
		}
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		add(c, !pod.IsSidecar(c))
	}
	for i := range p.Spec.Containers {
		add(&p.Spec.Containers[i], false)
	}
	return list
}

// Assign assigns devices to all containers of a pod, and calls the plugins' Allocate, unless both were done before. The
// error is a *pod.Failure, with a reason to wait or to reject the pod, or the error of a disk write. After an error,
// the pod's assignment is unchanged.
func (m *Manager) Assign(ctx context.Context, p *v1.Pod) error {
	m.mu.Lock()
	needs := m.needs(p)
	e := m.pods[p.UID]
	if len(needs) == 0 || e != nil && e.has(needs) {
		m.mu.Unlock()
		return nil
	}
	if e == nil {
		e = &podDevices{}
		m.pods[p.UID] = e
	}
	m.mu.Unlock()
	e.assigning.Lock()
	defer e.assigning.Unlock()
	m.mu.Lock()
	switch {
	case m.pods[p.UID] != e: // the pod was removed while another call held the lock
		m.mu.Unlock()
		return m.Assign(ctx, p)
	case e.has(needs):
		m.mu.Unlock()
		return nil
	}
	before, complete, earlier := e.containers, e.complete, e.earlier
	e.beside = assignment{}
	plugins, err := m.pluginsFor(e, needs)
	m.mu.Unlock()
	if err == nil {
		err = m.assign(ctx, p.UID, e, needs, plugins)
	}
	if err == nil {
		m.mu.Lock()
		e.containers, e.beside, e.complete, e.earlier = e.beside, before, true, ""
		m.mu.Unlock()
		err = m.save()
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.beside = nil; err != nil {
		e.containers, e.complete, e.earlier = before, complete, earlier
		if !complete && m.pods[p.UID] == e {
			delete(m.pods, p.UID)
		}
	}
	return err
}

// assigned returns the container's present devices of the resource, unless its plugin has to allocate them again. The
// caller holds the manager's mutex.
func (p *podDevices) assigned(n need) *holding {
	if !p.complete || p.earlier != "" {
		return nil
	}
	return p.containers[n.container][n.resource]
}

// has reports whether all needs are satisfied.
func (p *podDevices) has(needs []need) bool {
	return !slices.ContainsFunc(needs, func(n need) bool { return p.assigned(n) == nil })
}

// Awaits returns the failure with which the pod waits if it requests a resource whose plugin hasn't registered; nil if
// there is no such resource.
func (m *Manager) Awaits(p *v1.Pod) *pod.Failure {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, n := range m.needs(p) {
		if m.resources[n.resource].plugin == nil {
			return absent(n.resource)
		}
	}
	return nil
}

// absent returns the failure of a pod that requests a resource without a plugin.
func absent(resource string) *pod.Failure {
	return &pod.Failure{Reason: pod.ReasonUnexpectedAdmissionError, Wait: pod.WaitForPlugin,
		Message: "the device plugin of " + resource + ", which hasn't registered"}
}

// pluginsFor returns, by resource, the plugins whose Allocate has to be called. The caller holds the manager's mutex.
func (m *Manager) pluginsFor(e *podDevices, needs []need) (map[string]*plugin, error) {
	plugins := map[string]*plugin{}
	for _, n := range needs {
		if e.assigned(n) != nil {
			continue
		}
		if plugins[n.resource] = m.resources[n.resource].plugin; plugins[n.resource] == nil {
			return nil, absent(n.resource)
		}
	}
	return plugins, nil
}

// assign first chooses the devices of all containers, in addition to the pod's present ones, and then calls the
// plugins.
func (m *Manager) assign(ctx context.Context, uid types.UID, e *podDevices, needs []need,
	plugins map[string]*plugin) error {
	m.dropUnknown(uid)
	reusable := map[string][]string{} // by resource, devices of init containers that have ended
	for _, n := range needs {
		reused := reusable[n.resource][:min(n.count, len(reusable[n.resource]))]
		wanted := reused
		if h := e.containers[n.container][n.resource]; h != nil { // other goroutines don't change h.ids
			wanted = slices.Concat(reused, h.ids)
		} else if plugins[n.resource].options.GetGetPreferredAllocationAvailable() && n.count > len(reused) {
			wanted = slices.Concat(reused, m.preferred(ctx, plugins[n.resource], e, n, reused))
		}
		ids, short := m.reserve(e, n, wanted, reusable[n.resource])
		if short != nil {
			return short
		}
		if n.reusable {
			reusable[n.resource] = slices.Compact(slices.Sorted(slices.Values(
				slices.Concat(reusable[n.resource], ids))))
		} else {
			reusable[n.resource] = slices.DeleteFunc(slices.Clone(reusable[n.resource]), func(id string) bool {
				return slices.Contains(ids, id)
			})
		}
	}
	for _, n := range needs {
		h := e.beside[n.container][n.resource]
		if h.answer != nil {
			continue
		}
		answer, err := m.allocate(ctx, plugins[n.resource], n, h.ids)
		if err != nil {
			return err
		}
		m.mu.Lock()
		h.answer = answer
		m.mu.Unlock()
	}
	return nil
}

// dropUnknown frees the devices of pods that shouldn't run and have nothing left in the runtime: a record that a
// kubelet wrote contains such pods, because a kubelet removes them only when it needs their devices. The pod with the
// UID but is skipped.
func (m *Manager) dropUnknown(but types.UID) {
	m.mu.RLock()
	uids := slices.Collect(maps.Keys(m.pods))
	m.mu.RUnlock()
	for _, uid := range uids {
		if uid != but && !m.conf.Known(uid) {
			m.mu.Lock()
			if p := m.pods[uid]; p != nil && p.complete && p.beside == nil {
				delete(m.pods, uid)
			}
			m.mu.Unlock()
		}
	}
}

// free returns the healthy devices of a resource that can be assigned to e, sorted: devices that no pod has, and those
// that e has from an earlier boot. The caller holds the manager's mutex.
func (m *Manager) free(resource string, e *podDevices) []string {
	used := map[string]bool{}
	use := func(a assignment) {
		for name, h := range a.all {
			if name == resource {
				for _, id := range h.ids {
					used[id] = true
				}
			}
		}
	}
	for _, p := range m.pods {
		if use(p.beside); p != e || p.earlier == "" {
			use(p.containers)
		}
	}
	var ids []string
	for id, d := range m.resources[resource].devices {
		if d.GetHealth() == api.Healthy && !used[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// reserve assigns devices to a container: first the wanted ones that are free or reusable, then others.
func (m *Manager) reserve(e *podDevices, n need, wanted, reusable []string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := e.assigned(n); h != nil {
		e.beside.set(n.container, n.resource, h)
		return h.ids, nil
	}
	free := m.free(n.resource, e)
	can := make(map[string]bool, len(free)+len(reusable)) // the plugin's preferred list may be long and arbitrary
	for _, id := range slices.Concat(free, reusable) {
		can[id] = true
	}
	h := &holding{byNode: map[int64][]string{}}
	take := func(ids []string) {
		for _, id := range ids {
			if len(h.ids) < n.count && can[id] {
				delete(can, id)
				h.ids = append(h.ids, id)
			}
		}
	}
	take(wanted)
	take(reusable)
	take(free)
	if len(h.ids) < n.count {
		return nil, &pod.Failure{Reason: pod.ReasonOutOf + pod.Reason(n.resource), Wait: pod.WaitForRoom,
			Message: fmt.Sprintf("%s: requested: %d, available: %d", n.resource, n.count, len(free))}
	}
	slices.Sort(h.ids)
	for _, id := range h.ids {
		nodes := m.resources[n.resource].devices[id].GetTopology().GetNodes()
		for _, node := range nodes {
			if at := h.byNode[node.GetID()]; len(at) == 0 || at[len(at)-1] != id { // a node may be listed twice
				h.byNode[node.GetID()] = append(at, id)
			}
		}
		if len(nodes) == 0 {
			h.byNode[noNode] = append(h.byNode[noNode], id)
		}
	}
	e.beside.set(n.container, n.resource, h)
	return h.ids, nil
}

// noNode is the key of devices without a reported NUMA node.
const noNode = -1

// preferred returns the devices that the plugin prefers; none if it doesn't respond. The caller uses only those that
// are available.
func (m *Manager) preferred(ctx context.Context, p *plugin, e *podDevices, n need, must []string) []string {
	m.mu.RLock()
	available := slices.Concat(must, m.free(n.resource, e))
	m.mu.RUnlock()
	ctx, cancel := context.WithTimeout(ctx, m.limits.ask)
	defer cancel()
	answer, err := p.client.GetPreferredAllocation(ctx,
		&api.PreferredAllocationRequest{ContainerRequests: []*api.ContainerPreferredAllocationRequest{
			{AvailableDeviceIDs: available, MustIncludeDeviceIDs: must, AllocationSize: int32(n.count)}}})
	if err != nil || len(answer.GetContainerResponses()) != 1 {
		m.conf.Log.Info("A device plugin doesn't say which devices it prefers; any are taken",
			"resourceName", n.resource, "err", status.Convert(err).Message())
		return nil
	}
	return answer.ContainerResponses[0].GetDeviceIDs()
}

// allocate calls the plugin's Allocate for the devices of a container.
func (m *Manager) allocate(ctx context.Context, p *plugin, n need,
	ids []string) (*api.ContainerAllocateResponse, error) {
	within, cancel := context.WithTimeout(ctx, m.limits.allocate)
	defer cancel()
	began := time.Now()
	answer, err := p.client.Allocate(within,
		&api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: ids}}})
	m.conf.Meter.Allocated(n.resource, time.Since(began))
	f := &pod.Failure{Reason: pod.ReasonUnexpectedAdmissionError}
	switch code := status.Code(err); {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case code == codes.DeadlineExceeded:
		f.Wait, f.NotBefore, f.Message = pod.WaitForPlugin, time.Now().Add(again),
			fmt.Sprintf("the device plugin of %s, which hasn't answered within %s", n.resource, m.limits.allocate)
	case code == codes.Unavailable || code == codes.Canceled:
		f.Wait, f.NotBefore, f.Message = pod.WaitForPlugin, time.Now().Add(again),
			fmt.Sprintf("the device plugin of %s, which has ended", n.resource)
	case err != nil:
		f.Rejected, f.Message = true,
			fmt.Sprintf("Allocate failed due to %s, which is unexpected: the device plugin of %s refuses container %s",
				status.Convert(err).Message(), n.resource, n.container)
	case len(answer.GetContainerResponses()) != 1:
		f.Rejected, f.Message = true,
			fmt.Sprintf("Allocate failed due to an answer for %d containers, which is unexpected: the device plugin "+
				"of %s was asked for one", len(answer.GetContainerResponses()), n.resource)
	default:
		return answer.ContainerResponses[0], nil
	}
	return nil, f
}

// Provide adds the container's devices, with the plugin's variables, mounts and annotations for them, to the
// configuration of its instances. It first assigns devices to a pod without them: after a reboot, plugins have to
// allocate them again.
func (m *Manager) Provide(ctx context.Context, p *v1.Pod, c *v1.Container, to *translate.Devices) error {
	m.mu.RLock()
	uses := slices.ContainsFunc(m.needs(p), func(n need) bool { return n.container == c.Name })
	unknown := m.forgot(c)
	m.mu.RUnlock()
	if unknown != "" {
		return fmt.Errorf("container %s has no devices yet: the record of them was damaged; waiting up to %s for the "+
			"device plugin of %s, which hasn't registered", c.Name, m.limits.absent, unknown)
	}
	if !uses {
		return nil
	}
	if err := m.Assign(ctx, p); err != nil {
		return fmt.Errorf("container %s has no devices yet: %w", c.Name, plain(err))
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	e := m.pods[p.UID]
	if e == nil {
		return fmt.Errorf("container %s has no devices any more: the pod has ended", c.Name)
	}
	env := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(e.containers[c.Name])) {
		add(to, env, e.containers[c.Name][name].answer)
	}
	for _, name := range slices.Sorted(maps.Keys(env)) {
		to.Env = append(to.Env, &runtimeapi.KeyValue{Key: name, Value: []byte(env[name])})
	}
	return nil
}

// forgot returns a resource that the container requests and that may have had a plugin before the record was damaged,
// or "" if there is none. After the time in which plugins register, a resource without a plugin counts as a resource
// that the cluster defines, which needs no plugin. The caller holds the manager's mutex.
func (m *Manager) forgot(c *v1.Container) string {
	if m.forgotten.IsZero() || time.Since(m.forgotten) > m.limits.absent {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
		if pod.IsExtendedResource(name) && m.resources[string(name)] == nil {
			return string(name)
		}
	}
	return ""
}

// plain converts a failure of admission to an ordinary error, because a pod that was already admitted is never
// rejected.
func plain(err error) error {
	if f, ok := err.(*pod.Failure); ok {
		return fmt.Errorf("waiting for %s", f.Message)
	}
	return err
}

func add(d *translate.Devices, env map[string]string, answer *api.ContainerAllocateResponse) {
	maps.Copy(env, answer.GetEnvs())
	for _, mount := range answer.GetMounts() {
		d.Mounts = append(d.Mounts,
			&runtimeapi.Mount{ContainerPath: mount.GetContainerPath(), HostPath: mount.GetHostPath(),
				Readonly: mount.GetReadOnly()})
	}
	for _, device := range answer.GetDevices() {
		d.Devices = append(d.Devices,
			&runtimeapi.Device{ContainerPath: device.GetContainerPath(), HostPath: device.GetHostPath(),
				Permissions: device.GetPermissions()})
	}
	for _, device := range answer.GetCdiDevices() {
		if !slices.Contains(d.CDI, device.GetName()) {
			d.CDI = append(d.CDI, device.GetName())
		}
	}
	if len(answer.GetAnnotations()) > 0 && d.Annotations == nil {
		d.Annotations = map[string]string{}
	}
	maps.Copy(d.Annotations, answer.GetAnnotations())
}

// PreStart calls PreStartContainer of the plugins that require it: they may reset the container's devices. It has to
// be called before each instance.
func (m *Manager) PreStart(ctx context.Context, p *v1.Pod, c *v1.Container) error {
	m.mu.RLock()
	plugins, away := map[*plugin][]string{}, ""
	if e := m.pods[p.UID]; e != nil {
		for name, h := range e.containers[c.Name] {
			switch s := m.resources[name]; {
			case s == nil || !s.prestart:
			case s.plugin != nil:
				plugins[s.plugin] = h.ids
			default:
				away = name
			}
		}
	}
	m.mu.RUnlock()
	if away != "" {
		return fmt.Errorf("container %s: its devices have to be made ready by the device plugin of %s, which hasn't "+
			"registered", c.Name, away)
	}
	for _, plugin := range slices.SortedFunc(maps.Keys(plugins), func(a, b *plugin) int {
		return cmp.Compare(a.resource, b.resource)
	}) {
		within, cancel := context.WithTimeout(ctx, m.limits.prestart)
		_, err := plugin.client.PreStartContainer(within, &api.PreStartContainerRequest{DevicesIds: plugins[plugin]})
		cancel()
		if err != nil {
			return fmt.Errorf("container %s: the device plugin of %s can't make its devices ready: %s", c.Name,
				plugin.resource, status.Convert(err).Message())
		}
	}
	return nil
}

// Starting does nothing: PreStart has made the devices ready.
func (m *Manager) Starting(context.Context, *v1.Pod, *v1.Container, string) (started func(), err error) {
	return func() {}, nil
}

// Unthrottled returns false: devices need no CPU time of their own.
func (m *Manager) Unthrottled(*v1.Pod) bool { return false }

// Fixes returns nothing: extended resources can't be resized anyway.
func (m *Manager) Fixes(*v1.Pod, *pod.Allocation, *pod.Allocation) (why, detail string) {
	return "", ""
}
