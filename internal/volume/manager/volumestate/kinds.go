package volumestate

import "strings"

// Kinds of operations on a volume. All but Teardown are followed by a name, because several volumes of a pod may
// have the same place.
const (
	Mount    = "mount "
	Refresh  = "refresh "
	Part     = "part "
	Teardown = "teardown"
	// Remove is followed by the name of the removed part of a pod's directory.
	Remove = "remove "
)

// Doing returns a participle for an operation of this kind.
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

// IsTeardown reports whether operations of this kind remove something.
func IsTeardown(kind string) bool { return kind == Teardown || strings.HasPrefix(kind, Remove) }
