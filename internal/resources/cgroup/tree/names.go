package tree

import (
	"fmt"
	"path"
	"strconv"
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

// CgroupParent returns the value of CRI LinuxPodSandboxConfig.cgroup_parent for the pod: the pod's group in the form of
// the driver, a path or the name of the last slice. The runtime creates the groups of the sandbox and containers in it.
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

// suffix is the suffix of every slice's name.
const suffix = ".slice"

// slicePath returns the cgroup of the slice whose name has these parts, from the root down. The dashes in a slice's
// name determine its parents (systemd.slice(5)): kubepods, burstable becomes
// /kubepods.slice/kubepods-burstable.slice.
func slicePath(parts []string) string {
	var whole, name strings.Builder
	for i, part := range parts {
		if i > 0 {
			name.WriteByte('-')
		}
		name.WriteString(part)
		whole.WriteString("/" + name.String() + suffix)
	}
	if len(parts) == 0 {
		return "/"
	}
	return whole.String()
}

// sliceRoot returns the parts of the slice name for a cgroup path from the configuration. It accepts both /a/b and
// /a.slice/a-b.slice. In the former, a dash within a part isn't a separator, and becomes an underscore.
func sliceRoot(group string) []string {
	if name, ok := strings.CutSuffix(path.Base(group), suffix); ok {
		return strings.FieldsFunc(name, func(r rune) bool { return r == '-' })
	}
	return strings.FieldsFunc(strings.ReplaceAll(group, "-", "_"), func(r rune) bool { return r == '/' })
}

// slicePart escapes a text so that it is one part of a slice's name: a dash becomes an underscore, and bytes other than
// letters, digits, dots and colons become \xNN.
func slicePart(text string) string {
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == '-':
			b.WriteByte('_')
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == ':':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, `\x%02x`, c)
		}
	}
	return b.String()
}

// sliceBelow reverses slicePart for the last part of the slice's name, if the parts before it are these.
func sliceBelow(parts []string, name string) (text string, ok bool) {
	part, ok := strings.CutSuffix(name, suffix)
	if !ok {
		return "", false
	}
	part, ok = strings.CutPrefix(part, strings.Join(parts, "-")+"-")
	if !ok || strings.Contains(part, "-") {
		return "", false
	}
	var b strings.Builder
	for i := 0; i < len(part); i++ {
		switch c := part[i]; {
		case c == '_':
			b.WriteByte('-')
		case c == '\\':
			if i+4 > len(part) || part[i+1] != 'x' {
				return "", false
			}
			n, err := strconv.ParseUint(part[i+2:i+4], 16, 8)
			if err != nil {
				return "", false
			}
			b.WriteByte(byte(n))
			i += 3
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), true
}
