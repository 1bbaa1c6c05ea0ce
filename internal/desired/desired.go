package desired

import (
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Claim is one pod that a source wants to run.
type Claim struct {
	// Desired is the pod. A source reports the same pointer for as long as
	// nothing about the pod changes, which is what makes comparing sets cheap.
	Desired *pod.Desired
	// Document is the position in the manifest, from 1, for the case that one
	// manifest makes several claims at once.
	Document int
	// Since is when this origin first asked for a pod of this name. Where two
	// origins ask for one name the earlier wins. Sources keep it across restarts of
	// the agent, so that a restart doesn't give the name to the other.
	Since time.Time
}

// ObjectClaim is one object that a source defines. Its fields are as a Claim's.
type ObjectClaim struct {
	Object   *object.Desired
	Document int
	Since    time.Time
}

// Edit is a change of the manifest of a pod that was wanted before, under this name.
type Edit struct {
	New *pod.Desired
	// Why is empty if the edit is applied in place. Otherwise it says what stands in
	// the way of that, and New is another pod.
	Why string
}

// Report is everything one source says at one time. It replaces what the source
// said before. It is read-only once reported.
type Report struct {
	Source  pod.Source
	Claims  []Claim
	Objects []ObjectClaim
	// Refused says where manifests define objects that can't be used as they are written there, and of
	// which there is no older version.
	Refused  map[object.Key]string
	Problems []pod.Problem
	// RefusedPods are those of an API server that can't be run.
	RefusedPods []pod.Refusal
	// Edits are what was edited since the report before.
	Edits []Edit
	// Pending says that the source doesn't know yet everything it wants. What it
	// says counts, but it doesn't count as having reported.
	Pending bool
}

// Sink takes reports. It is safe for concurrent use and doesn't block.
type Sink interface {
	Report(Report)
}
