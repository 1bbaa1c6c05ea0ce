// Package nodefacts holds the facts about this node while the agent runs. Some come from the machine. Others come
// later: with an API server, labels, addresses and pod CIDRs come from the node's object.
package nodefacts

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
)

// Facts are the facts at one moment. They and their contents are immutable.
type Facts struct {
	// HostIPs are the node's addresses, the primary one first. If an external cloud provider sets them, there are
	// none at first.
	HostIPs []string
	// Addresses are all addresses and names in the node's object.
	Addresses []v1.NodeAddress
	Labels    map[string]string
	Taints    []v1.Taint
	// UID is the UID of the node's object; empty while there is no object.
	UID      types.UID
	PodCIDRs []string
	// ObjectTTL is how many seconds a ConfigMap or Secret counts as current after it was read, if it isn't watched.
	ObjectTTL int
	// Capacity is the machine's resources, Allocatable the part for pods.
	Capacity, Allocatable v1.ResourceList
	// AwaitedPlugins are the resources whose device plugins haven't registered (again) yet.
	AwaitedPlugins map[v1.ResourceName]bool
	// Advertised are the allocatable extended resources in the node's object: those of device plugins, and those that
	// an administrator has added (https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/).
	Advertised v1.ResourceList
	// DeclaredFeatures are the features that the node declares (KEP-5328).
	DeclaredFeatures []string
	// Images are the images of the container runtime.
	Images []v1.ContainerImage
	// Pressure says which resources the node is short of.
	Pressure admission.Pressure
	// StorageFailed is the error of writing to the disk of the root directory; empty if writing works, or fails only
	// because the disk is full.
	StorageFailed string
	// CSIDrivers are the registered CSI drivers, sorted by name.
	CSIDrivers []CSIDriver
	// CSILabels has the results of writing the drivers' IDs and topology to the node's object, CSINode those of writing
	// the drivers' entries to the node's CSINode object. A driver gets a result in CSINode only after that in
	// CSILabels. Each map is nil without an API server, and until a call about its object was answered.
	CSILabels, CSINode map[string]CSIEntry
	// CSINodeMissing is why the node's CSINode object can't be relied on yet; empty once the agent has written it or
	// found it up to date, and without an API server.
	CSINodeMissing string
	// InUse are the sorted names of attachable volumes that this node wants or uses. It is nil until the volume manager
	// has determined them after a start: until then, the list in the node's object isn't changed. An empty list isn't
	// nil.
	InUse []v1.UniqueVolumeName
	// ReportedInUse are the names that the node's object lists as in use, and VolumesAttached the volumes that the
	// same state of the object lists as attached. Both are nil until such a state was received, and without an API
	// server. A name stays in ReportedInUse only as long as no call that may remove it from the object was sent.
	// Attached combines both lists.
	ReportedInUse   []v1.UniqueVolumeName
	VolumesAttached []v1.AttachedVolume
}

// Attached reports whether a volume is attached to this node and stays so while it is in InUse: one state of the node's
// object lists it as in use and as attached. A controller that detaches a volume first removes it from volumesAttached,
// and then checks volumesInUse. An entry in volumesAttached alone proves nothing: the controller may be detaching the
// volume already.
func (f *Facts) Attached(name v1.UniqueVolumeName) bool {
	return slices.Contains(f.ReportedInUse, name) &&
		slices.ContainsFunc(f.VolumesAttached, func(v v1.AttachedVolume) bool { return v.Name == name })
}

// Detached reports whether the node's object lists a volume as in use, but not as attached.
func (f *Facts) Detached(name v1.UniqueVolumeName) bool {
	return slices.Contains(f.ReportedInUse, name) && !f.Attached(name)
}

// CSIDriver is a CSI driver that has registered, as the API server's objects describe it. The writer of this fact has
// checked that the driver may have this name, ID and topology.
type CSIDriver struct {
	Name, NodeID string
	// Topology is where volumes are accessible, as labels of the node.
	Topology map[string]string
	// Limit is how many volumes of the driver the node may have; 0 for any number.
	Limit int32
	// Generation distinguishes registrations of one name: a later one has a greater number.
	Generation uint64
}

// CSIEntry is the result of the last attempt to write a driver's entry of an object.
type CSIEntry struct {
	// Generation is the CSIDriver.Generation of the registration.
	Generation uint64
	// Refused is the error if the entry can't be written; empty if it was written.
	Refused string
}

// Field is a set of facts.
type Field uint

const (
	HostIPs Field = 1 << iota
	Addresses
	Labels
	Taints
	UID
	PodCIDRs
	ObjectTTL
	Capacity
	Allocatable
	AwaitedPlugins
	Advertised
	DeclaredFeatures
	Images
	Pressure
	StorageFailed
	CSIDrivers
	CSILabels
	CSINode
	CSINodeMissing
	InUse
	ReportedInUse
	VolumesAttached
	// All is every fact.
	All = 1<<iota - 1
)

// field names, compares and copies one fact.
type field struct {
	bit  Field
	name string
	same func(a, b *Facts) bool
	set  func(to, from *Facts)
}

func fieldOf[T any](bit Field, name string, at func(*Facts) *T) field {
	return field{bit, name, func(a, b *Facts) bool { return equality.Semantic.DeepEqual(*at(a), *at(b)) },
		func(to, from *Facts) { *at(to) = *at(from) }}
}

// listOf is like fieldOf for a list; an empty list differs from nil.
func listOf[T comparable](bit Field, name string, at func(*Facts) *[]T) field {
	f := fieldOf(bit, name, at)
	f.same = func(a, b *Facts) bool { return (*at(a) == nil) == (*at(b) == nil) && slices.Equal(*at(a), *at(b)) }
	return f
}

func fields() []field {
	return []field{
		fieldOf(HostIPs, "host IPs", func(f *Facts) *[]string { return &f.HostIPs }),
		fieldOf(Addresses, "addresses", func(f *Facts) *[]v1.NodeAddress { return &f.Addresses }),
		fieldOf(Labels, "labels", func(f *Facts) *map[string]string { return &f.Labels }),
		fieldOf(Taints, "taints", func(f *Facts) *[]v1.Taint { return &f.Taints }),
		fieldOf(UID, "UID", func(f *Facts) *types.UID { return &f.UID }),
		fieldOf(PodCIDRs, "pod CIDRs", func(f *Facts) *[]string { return &f.PodCIDRs }),
		fieldOf(ObjectTTL, "TTL of objects", func(f *Facts) *int { return &f.ObjectTTL }),
		fieldOf(Capacity, "capacity", func(f *Facts) *v1.ResourceList { return &f.Capacity }),
		fieldOf(Allocatable, "allocatable", func(f *Facts) *v1.ResourceList { return &f.Allocatable }),
		fieldOf(AwaitedPlugins, "awaited device plugins", func(f *Facts) *map[v1.ResourceName]bool {
			return &f.AwaitedPlugins
		}),
		fieldOf(Advertised, "advertised resources", func(f *Facts) *v1.ResourceList { return &f.Advertised }),
		fieldOf(DeclaredFeatures, "declared features", func(f *Facts) *[]string { return &f.DeclaredFeatures }),
		fieldOf(Images, "images", func(f *Facts) *[]v1.ContainerImage { return &f.Images }),
		fieldOf(Pressure, "pressure", func(f *Facts) *admission.Pressure { return &f.Pressure }),
		fieldOf(StorageFailed, "state of storage", func(f *Facts) *string { return &f.StorageFailed }),
		fieldOf(CSIDrivers, "CSI drivers", func(f *Facts) *[]CSIDriver { return &f.CSIDrivers }),
		fieldOf(CSILabels, "CSI drivers' labels", func(f *Facts) *map[string]CSIEntry { return &f.CSILabels }),
		{CSINode, "CSINode entries", func(a, b *Facts) bool {
			return (a.CSINode == nil) == (b.CSINode == nil) && maps.Equal(a.CSINode, b.CSINode)
		}, func(to, from *Facts) { to.CSINode = from.CSINode }},
		fieldOf(CSINodeMissing, "CSINode object", func(f *Facts) *string { return &f.CSINodeMissing }),
		listOf(InUse, "volumes in use", func(f *Facts) *[]v1.UniqueVolumeName { return &f.InUse }),
		listOf(ReportedInUse, "reported volumes in use", func(f *Facts) *[]v1.UniqueVolumeName {
			return &f.ReportedInUse
		}),
		listOf(VolumesAttached, "attached volumes", func(f *Facts) *[]v1.AttachedVolume { return &f.VolumesAttached }),
	}
}

// Board holds the current facts. It is safe for concurrent use.
type Board struct {
	now atomic.Pointer[Facts]
	// mu is held while facts are replaced.
	mu      sync.Mutex
	writers map[Field]string
	readers map[wake.Slot]Field
}

// NewBoard returns a board with these facts.
func NewBoard(first Facts) *Board {
	b := &Board{writers: map[Field]string{}, readers: map[wake.Slot]Field{}}
	b.now.Store(&first)
	return b
}

// Now returns the facts at the moment. They must not be changed.
func (b *Board) Now() *Facts { return b.now.Load() }

// Watch returns a channel that receives after each change of one of these facts. Several changes are combined if the
// channel's value isn't received in between. The channel is never closed. stop ends the subscription and may be called
// repeatedly.
func (b *Board) Watch(what Field) (changed <-chan struct{}, stop func()) {
	slot := wake.NewSlot()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.readers[slot] = what
	return slot, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.readers, slot)
	}
}

// Writer changes the facts that it owns. Each fact has at most one Writer.
type Writer struct {
	board *Board
	owned Field
}

// Writer returns the writer of these facts, or an error if one of them has a writer already.
func (b *Board) Writer(name string, what Field) (*Writer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range fields() {
		if other, taken := b.writers[f.bit]; taken && what&f.bit != 0 {
			return nil, fmt.Errorf("the node's %s can't be written by %s: %s writes them", f.name, name, other)
		}
	}
	for _, f := range fields() {
		if what&f.bit != 0 {
			b.writers[f.bit] = name
		}
	}
	return &Writer{board: b, owned: what}, nil
}

// Set calls the function change with a copy of the facts, and wakes the watchers of the changed facts. Changes of facts
// that the writer doesn't own are dropped. change must replace slices and maps, not modify them.
func (w *Writer) Set(change func(*Facts)) {
	b := w.board
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.now.Load()
	asked, next := *was, *was
	change(&asked)
	var changed Field
	for _, f := range fields() {
		if w.owned&f.bit != 0 && !f.same(was, &asked) {
			f.set(&next, &asked)
			changed |= f.bit
		}
	}
	if changed == 0 {
		return
	}
	b.now.Store(&next)
	for slot, what := range b.readers {
		if what&changed != 0 {
			slot.Wake()
		}
	}
}
