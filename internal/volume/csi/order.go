package csi

import (
	"errors"
	"io/fs"
)

// step is the step before a volume can be used at a place: the target of a pod, or the directory where it is staged
// for all pods of the node.
type step int

const (
	// keep: the driver has done it, and isn't called.
	keep step = iota
	// begin: the driver holds nothing at the place. If it refuses the call, it still holds nothing, and must not be
	// called to undo it.
	begin
	// repeat: the driver may hold the volume at the place. It is called with the same arguments, and may hold the
	// volume after any answer.
	repeat
	// undo: the driver may hold the volume at the place with other arguments, or another volume. That is undone, and
	// then the call is a begin.
	undo
	// blocked: the driver holds the volume for pods that use it, by an attachment that isn't there any more. Other pods
	// can't use it before they have ended.
	blocked
)

// found is the state of a place.
type found struct {
	// had is its record, and err the error of reading it.
	had record
	err error
	// mounted says that something is mounted at it, used that pods use it. shared says that another pod may be about to
	// use it.
	mounted, used, shared bool
}

// next decides the step by the state of the place and the record that the place is to have. boot is the ID of this boot
// of the machine.
//
// A call whose result isn't certain is repeated with the same arguments while the volume is wanted, and undone once it
// isn't; a volume whose release has begun isn't used without another call (CSI: "Error Scheme", "Volume Lifecycle"). A
// volume that pods use is never undone.
func (f found) next(want record, boot string) step {
	had := f.had
	switch {
	case errors.Is(f.err, fs.ErrNotExist) && !f.mounted:
		return begin
	case f.err != nil:
		return repeat // most likely it is the record of this volume
	case had[keyUncertain] == released && !f.mounted:
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

// done reports whether the driver certainly holds the volume. It needn't mount anything where it stages a volume.
func (f found) done(boot string) bool {
	return f.had.certain() && (f.mounted || boot != "" && f.had[keyBoot] == boot)
}
