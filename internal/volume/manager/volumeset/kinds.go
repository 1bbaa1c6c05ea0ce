package volumeset

import "strings"

// Kinds of operations on a volume. All but taking down are followed by what tells operations on one place
// apart: two volumes of a pod may have the same.
const (
	Mount    = "mount "
	Refresh  = "refresh "
	Part     = "part "
	TakeDown = "take down"
	// Remove is followed by the name of what is removed of a pod's folder.
	Remove = "remove "
)

// Doing is what happens to a volume in an operation of a kind.
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

// TakesDown reports whether operations of a kind remove something.
func TakesDown(kind string) bool { return kind == TakeDown || strings.HasPrefix(kind, Remove) }
