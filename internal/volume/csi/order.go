package csi

import (
	"errors"
	"io/fs"
)

// step is the next step to make a volume usable at a place. A place is the target path of a pod, or the directory where
// the volume is staged for all pods of the node.
type step int

const (
	// keep: the driver already holds the volume at the place, and isn't called.
	keep step = iota
	// begin: the driver holds nothing at the place. If it refuses the call, it still holds nothing, and must not be
	// called to undo it.
	begin
	// repeat: the driver may hold the volume at the place. The driver is called with the same arguments, and may hold
	// the volume whatever its answer is.
	repeat
	// undo: the driver may hold the volume at the place with other arguments, or another volume. The driver first has
	// to release it; the step after that is begin.
	undo
	// blocked: the driver holds the volume for pods that use it, through an attachment that doesn't exist any more.
	// Other pods can use the volume only after these pods have ended.
	blocked
)

// found is the state of a place.
type found struct {
	// had is the record of the place, and err the error of reading it.
	had record
	err error
	// mounted says that something is mounted at the place, used that pods use the place. shared says that another pod
	// may be about to use it.
	mounted, used, shared bool
}

// next decides on the step, from the state of the place and the record that the place should have. boot is the ID of
// this boot of the machine.
//
// A call with an uncertain result is repeated with the same arguments as long as the volume is wanted, and undone
// afterwards. A volume whose release has begun isn't used without another call (CSI: "Error Scheme", "Volume
// Lifecycle"). A volume that pods use is never undone.
func (f found) next(want record, boot string) step {
	had := f.had
	switch {
	case errors.Is(f.err, fs.ErrNotExist) && !f.mounted:
		return begin
	case f.err != nil:
		return repeat // an unreadable record is most likely the record of this volume
	case had[keyUncertain] == released && !f.mounted: // whatever the attachment: there is nothing to undo
		return begin
	case !had.same(want) && f.used && f.mounted:
		return keep
	case !had.same(want):
		return undo
	case had.attachedOtherwise(want) && f.used && (f.shared || f.mounted):
		return blocked
	case had.attachedOtherwise(want):
		return undo
	case f.done(boot) && (f.used || f.shared):
		return keep // whatever the arguments
	case had[keyArguments] != "" && had[keyArguments] != want[keyArguments] && !f.used:
		return undo
	case f.done(boot):
		return keep
	default:
		return repeat
	}
}

// done reports whether the driver certainly holds the volume. A driver may stage a volume without mounting anything at
// the place.
func (f found) done(boot string) bool {
	return f.had.certain() && (f.mounted || boot != "" && f.had[keyBoot] == boot)
}
