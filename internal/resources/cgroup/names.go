package cgroup

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Driver says how control groups are made (KubeletConfiguration cgroupDriver).
type Driver string

const (
	// DriverCgroupfs makes them as directories of the cgroup file system.
	DriverCgroupfs Driver = "cgroupfs"
	// DriverSystemd asks systemd for slices.
	DriverSystemd Driver = "systemd"
)

// podPrefix begins the name of a pod's group; the UID follows.
const podPrefix = "pod"

// classes are all QoS classes: a pod whose spec is gone may be in any of their QoS cgroups.
var classes = [...]v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}

// root are the parts of CgroupRoot's name.
func (m *Manager) root() []string {
	if m.conf.Driver == DriverSystemd {
		return sliceRoot(m.conf.CgroupRoot)
	}
	return strings.FieldsFunc(m.conf.CgroupRoot, func(r rune) bool { return r == '/' })
}

// elements are the parts of a QoS cgroup's name, from the root down.
func (m *Manager) elements(class v1.PodQOSClass) []string {
	parts := append(m.root(), "kubepods")
	if class != v1.PodQOSGuaranteed {
		parts = append(parts, strings.ToLower(string(class)))
	}
	return parts
}

// qosCgroup is the name of the group that holds the class's pods.
func (m *Manager) qosCgroup(class v1.PodQOSClass) string {
	return m.conf.Driver.path(m.elements(class))
}

// name is the name of the pod's group if it is of this class.
func (m *Manager) name(class v1.PodQOSClass, uid types.UID) string {
	element := podPrefix + string(uid)
	if m.conf.Driver == DriverSystemd {
		element = slicePart(element)
	}
	return m.conf.Driver.path(append(m.elements(class), element))
}

// uid is the UID of the pod whose group has this name in the class's QoS cgroup, if it is a pod's.
func (m *Manager) uid(class v1.PodQOSClass, entry string) (types.UID, bool) {
	ok := true
	if m.conf.Driver == DriverSystemd {
		entry, ok = sliceBelow(m.elements(class), entry)
	}
	uid, isPod := strings.CutPrefix(entry, podPrefix)
	return types.UID(uid), ok && isPod && uid != ""
}

// path is the name of the group with these parts.
func (d Driver) path(elements []string) string {
	if d == DriverSystemd {
		return slicePath(elements)
	}
	return "/" + strings.Join(elements, "/")
}

// forRuntime writes a group's name as the CRI wants it.
func (d Driver) forRuntime(name string) string {
	if d == DriverSystemd {
		return path.Base(name)
	}
	return name
}
