package resources

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/resources/slice"
)

// Driver is who makes control groups (KubeletConfiguration cgroupDriver).
type Driver string

const (
	// DriverCgroupfs makes them as folders of the cgroup file system.
	DriverCgroupfs Driver = "cgroupfs"
	// DriverSystemd asks systemd for slices.
	DriverSystemd Driver = "systemd"
)

// podPrefix begins the name of a pod's group; the UID follows.
const podPrefix = "pod"

// classes are all QoS classes: a pod whose spec is gone may be in any of their tiers.
var classes = [...]v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}

// root are the parts of CgroupRoot's name.
func (m *Manager) root() []string {
	if m.conf.Driver == DriverSystemd {
		return slice.Root(m.conf.CgroupRoot)
	}
	return strings.FieldsFunc(m.conf.CgroupRoot, func(r rune) bool { return r == '/' })
}

// elements are the parts of a tier's name, from the root down.
func (m *Manager) elements(class v1.PodQOSClass) []string {
	parts := append(m.root(), "kubepods")
	if class != v1.PodQOSGuaranteed {
		parts = append(parts, strings.ToLower(string(class)))
	}
	return parts
}

// tier is the name of the group that holds the class's pods.
func (m *Manager) tier(class v1.PodQOSClass) string {
	return m.conf.Driver.path(m.elements(class))
}

// name is the name of the pod's group if it is of this class.
func (m *Manager) name(class v1.PodQOSClass, uid types.UID) string {
	element := podPrefix + string(uid)
	if m.conf.Driver == DriverSystemd {
		element = slice.Part(element)
	}
	return m.conf.Driver.path(append(m.elements(class), element))
}

// uid is whose group it is that has this name in the tier, if it is a pod's.
func (m *Manager) uid(class v1.PodQOSClass, entry string) (types.UID, bool) {
	ok := true
	if m.conf.Driver == DriverSystemd {
		entry, ok = slice.Below(m.elements(class), entry)
	}
	uid, isPod := strings.CutPrefix(entry, podPrefix)
	return types.UID(uid), ok && isPod && uid != ""
}

// path is the name of the group with these parts.
func (d Driver) path(elements []string) string {
	if d == DriverSystemd {
		return slice.Path(elements)
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
