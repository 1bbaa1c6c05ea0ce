package translate

import (
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Devices are the resources that resource managers have allocated to one container: device plugins' answers
// (Allocate), names of the Container Device Interface, CPUs and NUMA nodes.
type Devices struct {
	Assignment Assignment
	Devices    []*runtimeapi.Device
	// CDI lists CDI devices by their full names, "vendor.com/class=name". The runtime resolves them.
	CDI         []string
	Env         []*runtimeapi.KeyValue
	Mounts      []*runtimeapi.Mount
	Annotations map[string]string
}

// Assignment is the set of CPUs and memory nodes to which a container is confined. The zero Assignment doesn't
// confine it.
type Assignment struct {
	// CPUs and Mems are lists as in cpuset(7), "0-3,8"; empty for all.
	CPUs, Mems string
	// NoQuota means that the CPUs are exclusive to the container: a quota would only throttle it.
	NoQuota bool
}

// apply sets the container's cpuset.
func (a Assignment) apply(r *runtimeapi.LinuxContainerResources) {
	r.CpusetCpus, r.CpusetMems = a.CPUs, a.Mems
	if a.NoQuota && r.CpuPeriod != 0 {
		r.CpuQuota = unlimited
	}
}

// AddDevices adds devices and their environment, mounts and annotations to the instance. The environment and mounts
// in the pod's spec come after those of the devices, and so take precedence.
func (in *ContainerInput) AddDevices(d Devices) {
	if d.Assignment != (Assignment{}) {
		in.Assignment = d.Assignment
	}
	in.Devices = append(in.Devices, d.Devices...)
	for _, name := range d.CDI {
		in.CDIDevices = append(in.CDIDevices, &runtimeapi.CDIDevice{Name: name})
	}
	in.Env = append(d.Env[:len(d.Env):len(d.Env)], in.Env...)
	in.Mounts = append(d.Mounts[:len(d.Mounts):len(d.Mounts)], in.Mounts...)
	if len(d.Annotations) > 0 && in.Annotations == nil {
		in.Annotations = make(map[string]string, len(d.Annotations))
	}
	maps.Copy(in.Annotations, d.Annotations)
}

// addOthers adds others to the agent's own annotations or labels, except keys that own already has.
func addOthers(own, others map[string]string) {
	for k, v := range others {
		if _, taken := own[k]; !taken {
			own[k] = v
		}
	}
}

// Permissions of a device in its cgroup (CRI's Device).
const (
	readOnlyDevice = "r"
	fullDevice     = "mrw"
)

// BlockDevices returns the devices for the container's volumeDevices. volumes has the block volumes that are ready,
// by their name in the pod.
func BlockDevices(c *v1.Container, volumes map[string]pod.BlockVolume) ([]*runtimeapi.Device, error) {
	var devices []*runtimeapi.Device
	for _, d := range c.VolumeDevices {
		volume, ok := volumes[d.Name]
		if !ok {
			return nil, fmt.Errorf("container %s: volumeDevices: volume %q isn't there as a block device: only a "+
				"claim with volumeMode Block can be", c.Name, d.Name)
		}
		permissions := fullDevice
		if volume.ReadOnly {
			permissions = readOnlyDevice
		}
		devices = append(devices,
			&runtimeapi.Device{ContainerPath: d.DevicePath, HostPath: volume.HostPath, Permissions: permissions})
	}
	return devices, nil
}
