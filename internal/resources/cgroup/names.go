package cgroup

import (
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod/spec"
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

// Classes are all QoS classes: a pod without a spec may be in any of their cgroups.
var Classes = [...]v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}

// rootElements returns the elements of the name of the parent of kubepods.
func (t *Tree) rootElements() []string {
	if t.Driver == DriverSystemd {
		return sliceRoot(t.root)
	}
	return strings.FieldsFunc(t.root, func(r rune) bool { return r == '/' })
}

// elements returns the elements of a QoS cgroup's name, from the root down.
func (t *Tree) elements(class v1.PodQOSClass) []string {
	parts := append(t.rootElements(), "kubepods")
	if class != v1.PodQOSGuaranteed {
		parts = append(parts, strings.ToLower(string(class)))
	}
	return parts
}

// QoSCgroup returns the name of the group that contains the class's pods.
func (t *Tree) QoSCgroup(class v1.PodQOSClass) string {
	return t.Driver.path(t.elements(class))
}

// CgroupParent returns the pod's group in the driver's form, a path or the name of the last slice, for CRI
// LinuxPodSandboxConfig.cgroup_parent: the runtime creates the groups of the sandbox and containers in it.
func (t *Tree) CgroupParent(p *v1.Pod) string {
	if t.Driver == DriverSystemd {
		return path.Base(t.Group(p))
	}
	return t.Group(p)
}

// Group returns the name of the pod's group.
func (t *Tree) Group(p *v1.Pod) string { return t.GroupOf(spec.QOSClass(p), p.UID) }

// GroupOf returns the name of the pod's group if the pod is of this class.
func (t *Tree) GroupOf(class v1.PodQOSClass, uid types.UID) string {
	element := podPrefix + string(uid)
	if t.Driver == DriverSystemd {
		element = slicePart(element)
	}
	return t.Driver.path(append(t.elements(class), element))
}

// uid returns the UID of the pod whose group has this name in the class's QoS cgroup; false if it isn't a pod's
// group.
func (t *Tree) uid(class v1.PodQOSClass, entry string) (types.UID, bool) {
	ok := true
	if t.Driver == DriverSystemd {
		entry, ok = sliceBelow(t.elements(class), entry)
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
