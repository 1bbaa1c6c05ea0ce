package volumestate

import "strings"

// Kinds of operations on a volume. Each kind but Teardown is a prefix that a name follows. For Mount and Refresh it
// is the name of the volume, because several volumes of a pod may have the same place and thus the same
// operations.Key.
const (
	Mount    = "mount "
	Refresh  = "refresh "
	Part     = "part "
	Teardown = "teardown"
	// Forget is a teardown without calling the program that holds the volume.
	Forget = "forget"
	// Remove is followed by the name of the removed part of a pod's directory.
	Remove = "remove "
)

// Doing returns a participle, for messages, that describes what an operation of this kind does to its volume or
// directory.
func Doing(kind string) string {
	switch what, _, _ := strings.Cut(kind, " "); what + " " {
	case Mount:
		return "mounted"
	case Refresh:
		return "updated"
	case Part:
		return "made ready for a container"
	case Remove:
		return "removed"
	default:
		return "unmounted"
	}
}

// IsTeardown reports whether operations of this kind remove a volume or a part of a pod's directory.
func IsTeardown(kind string) bool {
	return kind == Teardown || kind == Forget || strings.HasPrefix(kind, Remove)
}
