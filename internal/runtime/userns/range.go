// Package userns allocates the host's user and group IDs that pods with user
// namespaces of their own have (spec.hostUsers: false, KEP-127). No two pods ever
// have the same: what a pod has is in its directory before anything runs with it, as
//
//	PODS/UID/userns    {"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[...]}
//
// which is the kubelet's own record, and is read back when the agent starts.
package userns

import (
	"fmt"
	"math"
)

// Block is what all ranges are multiples of: the IDs that every container image
// may count on (KEP-127). The first block is the host's own.
const Block = 65536

// end is where the IDs for pods end: the last ID of all is no ID, so its block is left out.
const end = math.MaxUint32 + 1 - Block

// Range is a range of IDs of the host, for users and groups alike. In the pod they count from 0.
type Range struct {
	// HostID is the first one, Length how many there are. Both are multiples of Block.
	HostID uint32
	Length uint32
}

func (r Range) String() string { return fmt.Sprintf("%d-%d", r.HostID, r.end()-1) }

// end is the first ID after the range.
func (r Range) end() uint64 { return uint64(r.HostID) + uint64(r.Length) }

func (r Range) overlaps(o Range) bool {
	return uint64(r.HostID) < o.end() && uint64(o.HostID) < r.end()
}

// check refuses ranges that pods can't have, among them any with IDs of the host's own.
func (r Range) check() error {
	switch {
	case r.Length == 0 || r.Length%Block != 0 || r.HostID%Block != 0:
		return fmt.Errorf("first ID %d and length %d aren't multiples of %d", r.HostID, r.Length, Block)
	case r.HostID < Block:
		return fmt.Errorf("it has IDs below %d, which are the host's own", Block)
	case r.end() > end:
		return fmt.Errorf("it goes beyond %d", uint64(end)-1)
	}
	return nil
}
