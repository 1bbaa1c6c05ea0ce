package desired

import (
	"time"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Claim is a pod that a source defines.
type Claim struct {
	// Desired is the pod. A source reports the same pointer as long as nothing about the pod changes, so that sets
	// can be compared cheaply.
	Desired *pod.Desired
	// Document is the position in the manifest, from 1. It orders claims of one manifest that were made at the same
	// time.
	Document int
	// Since is when this origin first defined a pod of this name. If two origins define the same name, the earlier
	// origin gets it. Sources keep the time across restarts of the agent, so that a restart doesn't give the name to
	// the other origin.
	Since time.Time
}

// ObjectClaim is an object that a source defines. Its fields are like those of Claim.
type ObjectClaim struct {
	Object   *object.Desired
	Document int
	Since    time.Time
}

// Edit is a change of a pod's manifest after a pod of the same name was reported.
type Edit struct {
	New *pod.Desired
	// Why is empty if the edit is applied in place. Otherwise it is the reason why it can't be, and New is another
	// pod.
	Why string
}

// Report is the complete state of one source. It replaces the source's previous report. It is read-only once
// reported.
type Report struct {
	Source  pod.Source
	Claims  []Claim
	Objects []ObjectClaim
	// Refused has the objects that manifests define but that can't be used and have no older good version. The values
	// are the objects' origins.
	Refused  map[object.Key]string
	Problems []pod.Problem
	// RefusedPods are pods of an API server that can't be run.
	RefusedPods []pod.Refusal
	// Edits are the edits since the previous report.
	Edits []Edit
	// Pending says that the source doesn't have its complete state yet. Its report is used, but the source doesn't
	// count as having reported.
	Pending bool
	// Away says that a Pending source can't be reached: its report has the pods that it had last.
	Away bool
}

// Sink receives reports. It is safe for concurrent use and doesn't block.
type Sink interface {
	Report(Report)
}
