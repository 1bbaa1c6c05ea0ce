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
)

// next decides the step by the record of the place, the error of reading it, and the record that the place is to have.
// there says that something is mounted at the place, and that it may be kept.
//
// A call whose result isn't certain is repeated with the same arguments while the volume is wanted, and undone once it
// isn't; a volume whose release has begun isn't used without another call (CSI: "Error Scheme", "Volume Lifecycle").
func next(had record, err error, want record, there bool) step {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return begin
	case err != nil:
		return repeat // most likely it is the record of this volume
	case had[keyDriver] != want[keyDriver] || had[keyHandle] != want[keyHandle]:
		return undo
	case there && had[keyUncertain] == "":
		return keep // whatever its arguments are: pods may use it
	case had[keyArguments] != "" && had[keyArguments] != want[keyArguments]:
		return undo
	default:
		return repeat
	}
}
