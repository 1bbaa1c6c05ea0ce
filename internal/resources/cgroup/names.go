package cgroup

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Driver is how cgroups are created (KubeletConfiguration cgroupDriver).
type Driver string

const (
	// DriverCgroupfs creates directories of the cgroup file system.
	DriverCgroupfs Driver = "cgroupfs"
	// DriverSystemd creates slices of systemd.
	DriverSystemd Driver = "systemd"
)

// podPrefix precedes the UID in the name of a pod's group.
const podPrefix = "pod"

// classes are all QoS classes: a pod without a spec may be in any of their cgroups.
var classes = [...]v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}

// root returns the elements of CgroupRoot's name.
func (m *Manager) root() []string {
	if m.conf.Driver == DriverSystemd {
		return sliceRoot(m.conf.CgroupRoot)
	}
	return strings.FieldsFunc(m.conf.CgroupRoot, func(r rune) bool { return r == '/' })
}

// elements returns the elements of a QoS cgroup's name, from the root down.
func (m *Manager) elements(class v1.PodQOSClass) []string {
	parts := append(m.root(), "kubepods")
	if class != v1.PodQOSGuaranteed {
		parts = append(parts, strings.ToLower(string(class)))
	}
	return parts
}

// qosCgroup returns the name of the group that contains the class's pods.
func (m *Manager) qosCgroup(class v1.PodQOSClass) string {
	return m.conf.Driver.path(m.elements(class))
}

// name returns the name of the pod's group if the pod is of this class.
func (m *Manager) name(class v1.PodQOSClass, uid types.UID) string {
	element := podPrefix + string(uid)
	if m.conf.Driver == DriverSystemd {
		element = slicePart(element)
	}
	return m.conf.Driver.path(append(m.elements(class), element))
}

// uid returns the UID of the pod whose group has this name in the class's QoS cgroup; false if it isn't a pod's
// group.
func (m *Manager) uid(class v1.PodQOSClass, entry string) (types.UID, bool) {
	ok := true
	if m.conf.Driver == DriverSystemd {
		entry, ok = sliceBelow(m.elements(class), entry)
	}
	uid, isPod := strings.CutPrefix(entry, podPrefix)
	return types.UID(uid), ok && isPod && uid != ""
}

// path returns the name of the group with these elements.
func (d Driver) path(elements []string) string {
	if d == DriverSystemd {
		return slicePath(elements)
	}
	return "/" + strings.Join(elements, "/")
}

// forRuntime converts a group's name to the CRI's form.
func (d Driver) forRuntime(name string) string {
	if d == DriverSystemd {
		return path.Base(name)
	}
	return name
}
