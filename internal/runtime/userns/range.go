// Package userns allocates the host's user and group IDs of pods with user namespaces (spec.hostUsers: false,
// KEP-127). No two pods share IDs: a pod's allocation is recorded in its directory before any process uses it, as
//
//	PODS/UID/userns    {"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[...]}
//
// This is the kubelet's format. The records are read when the agent starts.
package userns

import (
	"fmt"
	"math"
)

// Block is the unit of all ranges: every container image may rely on having that many IDs (KEP-127). The first
// block belongs to the host.
const Block = 65536

// end is the exclusive upper bound of the IDs for pods: the highest 32-bit ID isn't valid, so its block is omitted.
const end = math.MaxUint32 + 1 - Block

// Range is a range of IDs of the host, used for both users and groups. In the pod they start at 0.
type Range struct {
	// HostID is the first ID, Length the number of IDs. Both are multiples of Block.
	HostID uint32
	Length uint32
}

func (r Range) String() string { return fmt.Sprintf("%d-%d", r.HostID, r.end()-1) }

// end is the first ID after the range.
func (r Range) end() uint64 { return uint64(r.HostID) + uint64(r.Length) }

func (r Range) overlaps(o Range) bool {
	return uint64(r.HostID) < o.end() && uint64(o.HostID) < r.end()
}

// check rejects ranges that pods can't have, such as those with IDs of the host.
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
