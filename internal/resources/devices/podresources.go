package devices

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	deviceapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// Has returns the devices of each container of a pod for the pod resources API, one entry per device.
func (m *Manager) Has(uid types.UID) map[string][]*api.ContainerDevices {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p := m.pods[uid]
	if p == nil || !p.complete {
		return nil
	}
	has := make(map[string][]*api.ContainerDevices, len(p.containers))
	for container, byResource := range p.containers {
		for _, name := range slices.Sorted(maps.Keys(byResource)) {
			h := byResource[name]
			topology := map[string]*api.TopologyInfo{}
			for _, node := range slices.Sorted(maps.Keys(h.byNode)) {
				for _, id := range h.byNode[node] {
					if node == noNode {
						continue
					}
					if topology[id] == nil {
						topology[id] = &api.TopologyInfo{}
					}
					topology[id].Nodes = append(topology[id].Nodes, &api.NUMANode{ID: node})
				}
			}
			for _, id := range h.ids {
				has[container] = append(has[container],
					&api.ContainerDevices{ResourceName: name, DeviceIds: []string{id}, Topology: topology[id]})
			}
		}
	}
	return has
}

// Healthy returns the healthy devices of all registered plugins, including devices that are assigned to containers.
func (m *Manager) Healthy() (list []*api.ContainerDevices) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, name := range slices.Sorted(maps.Keys(m.resources)) {
		s := m.resources[name]
		for _, id := range slices.Sorted(maps.Keys(s.devices)) {
			d := s.devices[id]
			if s.plugin == nil || d.GetHealth() != deviceapi.Healthy {
				continue
			}
			entry := &api.ContainerDevices{ResourceName: name, DeviceIds: []string{id}}
			if nodes := d.GetTopology().GetNodes(); len(nodes) > 0 {
				entry.Topology = &api.TopologyInfo{}
				for _, node := range nodes {
					entry.Topology.Nodes = append(entry.Topology.Nodes, &api.NUMANode{ID: node.GetID()})
				}
			}
			list = append(list, entry)
		}
	}
	return list
}

// Health returns the health of each container's devices (KEP-4680). It is unknown while their plugin is absent or
// doesn't list them.
func (m *Manager) Health(uid types.UID) map[string][]v1.ResourceStatus {
	m.mu.RLock()
	defer m.mu.RUnlock()
	p := m.pods[uid]
	if p == nil || !p.complete {
		return nil
	}
	health := make(map[string][]v1.ResourceStatus, len(p.containers))
	for container, byResource := range p.containers {
		for _, name := range slices.Sorted(maps.Keys(byResource)) {
			of := v1.ResourceStatus{Name: v1.ResourceName(name)}
			for _, id := range byResource[name].ids {
				is := v1.ResourceHealthStatusUnknown
				if s := m.resources[name]; s != nil && s.plugin != nil && s.devices[id] != nil {
					is = v1.ResourceHealthStatusUnhealthy
					if s.devices[id].GetHealth() == deviceapi.Healthy {
						is = v1.ResourceHealthStatusHealthy
					}
				}
				of.Resources = append(of.Resources, v1.ResourceHealth{ResourceID: v1.ResourceID(id), Health: is})
			}
			health[container] = append(health[container], of)
		}
	}
	return health
}
