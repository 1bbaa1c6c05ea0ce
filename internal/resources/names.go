package resources

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Driver is who makes control groups (KubeletConfiguration cgroupDriver).
type Driver string

const (
	// DriverCgroupfs makes them as folders of the cgroup file system.
	DriverCgroupfs Driver = "cgroupfs"
	// DriverSystemd asks systemd for slices. This build knows their names only.
	DriverSystemd Driver = "systemd"
)

// podPrefix begins the name of a pod's group; the UID follows.
const podPrefix = "pod"

// classes are all QoS classes: a pod whose spec is gone may be in any of their tiers.
var classes = [...]v1.PodQOSClass{v1.PodQOSGuaranteed, v1.PodQOSBurstable, v1.PodQOSBestEffort}

// elements are the parts of a tier's name, from the root down.
func (m *Manager) elements(class v1.PodQOSClass) []string {
	parts := append(strings.FieldsFunc(m.conf.CgroupRoot, func(r rune) bool { return r == '/' }), "kubepods")
	if class != v1.PodQOSGuaranteed {
		parts = append(parts, strings.ToLower(string(class)))
	}
	return parts
}

// tier is the name of the group that holds the class's pods.
func (m *Manager) tier(class v1.PodQOSClass) string {
	return spell(m.conf.Driver, m.elements(class))
}

func (m *Manager) name(class v1.PodQOSClass, uid types.UID) string {
	return spell(m.conf.Driver, append(m.elements(class), podPrefix+string(uid)))
}

// spell writes a group's name as the driver has it. A systemd slice lies in the
// slices that its name's dashes spell (systemd.slice(5)), so that dashes within an
// element become underscores.
func spell(d Driver, elements []string) string {
	if d != DriverSystemd {
		return "/" + strings.Join(elements, "/")
	}
	var name, slice strings.Builder
	for i, e := range elements {
		if i > 0 {
			slice.WriteByte('-')
		}
		slice.WriteString(strings.ReplaceAll(e, "-", "_"))
		name.WriteString("/" + slice.String() + ".slice")
	}
	return name.String()
}
