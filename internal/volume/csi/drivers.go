// Package csi provides volumes of CSI drivers
// (https://github.com/container-storage-interface/spec/blob/v1.13.0/spec.md). Drivers are those that have
// registered; the plugin stages and publishes their volumes: inline ones (API: CSIVolumeSource), and PersistentVolumes
// (API: CSIPersistentVolumeSource), which a controller of the cluster may have to attach first.
//
// A driver is another program: it may hang, crash, be replaced, or be away for long. A call delays only the volumes of
// its driver, and a driver that is away changes nothing about mounted volumes. The record of a volume (vol_data.json,
// in the kubelet's format) is written before the first call that may make the driver hold something, and removed
// after the call that releases it.
package csi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/host/pluginwatch"
	"github.com/deckhand-node/deckhand/internal/kit/gate"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	specvalidation "github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

// Config configures Drivers. Fields without a default are required.
type Config struct {
	// Facts writes nodefacts.CSIDrivers.
	Facts *nodefacts.Writer
	// Board has nodefacts.CSINode: a driver is registered once the API server has its entry. It also has the volumes
	// that the node's object lists as in use and as attached. It is nil without an API server.
	Board *nodefacts.Board
	// Changed is called for pods that wait for a driver (pod.Failure.Awaits). It must not block.
	Changed func(...pod.Object)
	Meter   Meter
	Log     logr.Logger
	// NoController says that no controller may attach volumes to the node (enableControllerAttachDetach).
	NoController bool
	// BootID is the ID of this boot of the machine: a driver's staged volumes are gone in the next one.
	BootID string
	// Patience is the time limit of a call; 0 means 2 min.
	Patience time.Duration
	// Written is how long the registration of a driver waits until the API server has accepted the driver's entry; 0
	// means 30 s. After that time, the driver counts as registered, and its entry is written later.
	Written time.Duration
	// Absent is how long a driver with volumes on this node stays in the node's objects after the driver has gone; 0
	// means 60 s. With a shorter time, pods that need the driver couldn't be scheduled to this node each time the
	// driver's own pod is updated.
	Absent time.Duration
}

// Meter records metrics of calls.
type Meter interface {
	// CSICall records a call with the whole gRPC name of its method, and its status code. migrated says that it was for
	// a volume of a kind that the driver has replaced.
	CSICall(driver, method, code string, migrated bool, took time.Duration)
}

// Drivers are the registered drivers. It implements pluginwatch.Handler. It is safe for concurrent use.
type Drivers struct {
	conf Config
	look wake.Slot

	mu    sync.Mutex
	names map[string]*driver
	// last is the number of the last registration.
	last uint64
	// volumes maps the directories of volumes that drivers may hold to the drivers' names.
	volumes map[string]string
	// attachments are those of the volumes that were found attached and may be in use, by their keys.
	attachments map[string]attachment
	// uncertain has the directories of volumes whose release has begun. Their records may not contain this fact,
	// because they can't be written on a full disk.
	uncertain map[string]bool
}

// driver is one driver's name with its registrations and facts.
type driver struct {
	// registrations are those whose sockets exist, the newest last. Each call uses the newest.
	registrations []*registration
	// facts are those of the last registration. After the last registration has gone, they are kept until the time in
	// the field until.
	facts nodefacts.CSIDriver
	until time.Time
}

// registration is one registration of a driver. It is immutable but for the fields that Drivers.mu guards.
type registration struct {
	pluginwatch.Registration
	facts nodefacts.CSIDriver
	// mountsGroup says that the driver applies the fsGroup itself (VOLUME_MOUNT_GROUP).
	mountsGroup bool
	// stages says that the driver stages volumes once per node (STAGE_UNSTAGE_VOLUME).
	stages bool
	// multiWriter says that the driver distinguishes SINGLE_NODE_SINGLE_WRITER and SINGLE_NODE_MULTI_WRITER.
	multiWriter bool
	conn        *grpc.ClientConn
	gate        *gate.Gate
	// Drivers.mu guards the fields below: the number of calls under way, and whether the socket is gone. The connection
	// is closed when the last call has ended.
	calls int
	gone  bool
	// replaced is closed when another registration is used instead of this one; it is nil while another one is used.
	replaced chan struct{}
}

// replace records that another registration is used instead of this one. Drivers.mu is held.
func (r *registration) replace() {
	if r.replaced != nil {
		close(r.replaced)
		r.replaced = nil
	}
}

// parallel is the number of concurrent calls of a driver.
const parallel = 16

// NewDrivers returns Drivers without any driver.
func NewDrivers(c Config) *Drivers {
	c.Patience, c.Written = cmp.Or(c.Patience, 2*time.Minute), cmp.Or(c.Written, 30*time.Second)
	c.Absent = cmp.Or(c.Absent, time.Minute)
	return &Drivers{conf: c, look: wake.NewSlot(), names: map[string]*driver{}, volumes: map[string]string{},
		attachments: map[string]attachment{}, uncertain: map[string]bool{}}
}

// Run removes drivers that have been gone for long enough from the node's objects, until ctx ends. Then it closes the
// connections: afterwards, no method may be called. The error is nil.
func (d *Drivers) Run(ctx context.Context) error {
	for {
		var due <-chan time.Time
		if next := d.expire(); !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			d.close()
			return nil
		case <-due:
		case <-d.look:
		}
	}
}

// expire forgets drivers that have been gone for long enough, and returns when it has to be called next; zero for
// never.
func (d *Drivers) expire() (next time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for name, k := range d.names {
		switch {
		case len(k.registrations) > 0: // it is here
		case !now.Before(k.until) || !d.holds(name):
			delete(d.names, name)
		case next.IsZero() || k.until.Before(next):
			next = k.until
		}
	}
	d.publish()
	return next
}

// holds reports whether the driver may hold volumes on this node. The mutex is held.
func (d *Drivers) holds(name string) bool {
	for _, of := range d.volumes {
		if of == name {
			return true
		}
	}
	return false
}

func (d *Drivers) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.names {
		for _, r := range k.registrations {
			_ = r.conn.Close() // it fails only for a connection that is closed already
		}
	}
}

// publish writes the drivers to the board. The mutex is held.
func (d *Drivers) publish() {
	list := make([]nodefacts.CSIDriver, 0, len(d.names))
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		list = append(list, d.names[name].facts)
	}
	d.conf.Facts.Set(func(f *nodefacts.Facts) { f.CSIDrivers = list })
}

// Patience is the time limit for a registration: the driver's NodeGetInfo may have to query the cloud's API.
func (d *Drivers) Patience() time.Duration { return d.conf.Patience }

// Register implements pluginwatch.Handler. The newest registration of a name is used at once, whatever its version:
// while a driver is updated, its old and its new pod run side by side, often with equal versions. It returns when the
// API server has the driver's entry, or has refused it.
func (d *Drivers) Register(ctx context.Context, r pluginwatch.Registration) error {
	if err := check(r); err != nil {
		return fmt.Errorf("CSI driver %q: %w", bounded(r.Name), err)
	}
	conn, err := pluginwatch.Connect(r.Endpoint)
	if err != nil {
		return err
	}
	reg := &registration{Registration: r, conn: conn, gate: gate.New(parallel),
		replaced: make(chan struct{})}
	if err := d.describe(ctx, reg); err != nil {
		_ = conn.Close() // it fails only for a connection that is closed already
		return fmt.Errorf("CSI driver %s: %w", r.Name, err)
	}
	d.mu.Lock()
	d.last++
	reg.facts.Generation = d.last
	k := d.names[r.Name]
	if k == nil {
		k = &driver{}
		d.names[r.Name] = k
	}
	if n := len(k.registrations); n > 0 {
		k.registrations[n-1].replace()
	}
	k.registrations, k.facts = append(k.registrations, reg), reg.facts
	d.publish()
	d.mu.Unlock()
	d.conf.Changed(awaited(r.Name))
	if err := d.entered(ctx, reg); err != nil {
		d.remove(func(other *registration) bool { return other == reg })
		return fmt.Errorf("CSI driver %s: %w", r.Name, err)
	}
	return nil
}

// awaited is the object of pods that wait until a driver of this name has registered.
func awaited(name string) pod.Object { return pod.Object{Kind: pod.CSIDriver, Name: name} }

// check checks a registration before the driver is called.
func check(r pluginwatch.Registration) error {
	if wrong := specvalidation.CSIDriverName(r.Name, nil); len(wrong) > 0 {
		return fmt.Errorf("its name has to be a domain name of at most %d characters, such as csi.example.com",
			specvalidation.MaxCSIDriverName)
	}
	if !slices.ContainsFunc(r.Versions, func(text string) bool {
		v, err := version.ParseGeneric(text)
		return err == nil && v.Major() <= 1
	}) {
		return fmt.Errorf("it supports the versions %q of CSI, and version 1 is needed",
			bounded(strings.Join(r.Versions, ", ")))
	}
	return nil
}

// Limits of a driver's description of the node: maxNodeID is the API's limit for CSINode objects, in bytes; maxSegments
// is the agent's own limit of the number of topology segments.
const (
	maxNodeID   = 256
	maxSegments = 64
)

// describe asks the driver for its name, its capabilities and its description of this node.
func (d *Drivers) describe(ctx context.Context, r *registration) error {
	ctx, cancel := context.WithTimeout(ctx, d.conf.Patience)
	defer cancel()
	info, err := ask(ctx, d, rpc{driver: r.Name, method: spec.Identity_GetPluginInfo_FullMethodName},
		spec.NewIdentityClient(r.conn).GetPluginInfo, &spec.GetPluginInfoRequest{})
	if err != nil {
		return err
	}
	if info.GetName() != r.Name {
		return fmt.Errorf("the program at %s is the driver %q", r.Endpoint, bounded(info.GetName()))
	}
	node := spec.NewNodeClient(r.conn)
	able, err := ask(ctx, d, rpc{driver: r.Name, method: spec.Node_NodeGetCapabilities_FullMethodName},
		node.NodeGetCapabilities, &spec.NodeGetCapabilitiesRequest{})
	if err != nil {
		return err
	}
	for _, c := range able.GetCapabilities() {
		switch c.GetRpc().GetType() {
		case spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME:
			r.stages = true
		case spec.NodeServiceCapability_RPC_VOLUME_MOUNT_GROUP:
			r.mountsGroup = true
		case spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER:
			r.multiWriter = true
		}
	}
	here, err := ask(ctx, d, rpc{driver: r.Name, method: spec.Node_NodeGetInfo_FullMethodName}, node.NodeGetInfo,
		&spec.NodeGetInfoRequest{})
	if err != nil {
		return err
	}
	r.facts, err = factsOf(r.Name, here)
	return err
}

// factsOf checks a driver's description of this node.
func factsOf(name string, i *spec.NodeGetInfoResponse) (nodefacts.CSIDriver, error) {
	f := nodefacts.CSIDriver{Name: name, NodeID: i.GetNodeId(),
		Limit: int32(min(i.GetMaxVolumesPerNode(), math.MaxInt32))}
	segments := i.GetAccessibleTopology().GetSegments()
	switch {
	case f.NodeID == "" || len(f.NodeID) > maxNodeID:
		return f, fmt.Errorf("NodeGetInfo has to return a node_id of 1 to %d bytes", maxNodeID)
	case i.GetMaxVolumesPerNode() < 0:
		return f, errors.New("NodeGetInfo returned a negative max_volumes_per_node")
	case len(segments) > maxSegments:
		return f, fmt.Errorf("NodeGetInfo returned %d topology segments, and %d are allowed", len(segments),
			maxSegments)
	}
	for _, key := range slices.Sorted(maps.Keys(segments)) {
		if wrong := slices.Concat(validation.IsQualifiedName(key),
			validation.IsValidLabelValue(segments[key])); len(wrong) > 0 {
			return f, fmt.Errorf("NodeGetInfo returned the topology segment %q, which can't be a label of the node: %s",
				bounded(key), strings.Join(wrong, "; "))
		}
	}
	if len(segments) > 0 {
		f.Topology = maps.Clone(segments)
	}
	return f, nil
}

// entered waits until the API server has the driver's entry in the CSINode object, and returns its refusal. If that
// takes too long, the driver counts as registered.
func (d *Drivers) entered(ctx context.Context, r *registration) error {
	if d.conf.Board == nil {
		return nil
	}
	changed, stop := d.conf.Board.Watch(nodefacts.CSINode)
	defer stop()
	late := time.NewTimer(d.conf.Written)
	defer late.Stop()
	for {
		if e, ok := d.conf.Board.Now().CSINode[r.Name]; ok && e.Generation >= r.facts.Generation {
			if e.Generation == r.facts.Generation && e.Refused != "" {
				return errors.New(e.Refused)
			}
			return nil
		}
		select {
		case <-changed:
		case <-late.C:
			d.conf.Log.Info("A CSI driver is used before the API server has its entry in the CSINode object: that is "+
				"written as soon as the API server answers", "plugin", r.Name)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Gone implements pluginwatch.Handler.
func (d *Drivers) Gone(r pluginwatch.Registration) {
	d.remove(func(other *registration) bool { return other.Socket == r.Socket && other.Name == r.Name })
}

// remove removes registrations. Calls under way end first.
func (d *Drivers) remove(which func(*registration) bool) {
	var unused []*grpc.ClientConn
	d.mu.Lock()
	for _, k := range d.names {
		before := len(k.registrations)
		k.registrations = slices.DeleteFunc(k.registrations, func(r *registration) bool {
			if !which(r) {
				return false
			}
			r.replace()
			if r.gone = true; r.calls == 0 {
				unused = append(unused, r.conn)
			}
			return true
		})
		switch {
		case len(k.registrations) == before:
		case len(k.registrations) == 0:
			k.until = time.Now().Add(d.conf.Absent)
		default:
			last := k.registrations[len(k.registrations)-1]
			if k.facts = last.facts; last.replaced == nil {
				last.replaced = make(chan struct{})
			}
		}
	}
	d.mu.Unlock()
	for _, conn := range unused { // without the lock: this may take seconds if the driver doesn't read
		_ = conn.Close() // it fails only for a connection that is closed already
	}
	d.look.Wake()
}

// newest returns the newest registration of a name, and a channel that is closed when another one is used; nil if there
// is none.
func (d *Drivers) newest(name string) (r *registration, replaced <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if k := d.names[name]; k != nil && len(k.registrations) > 0 {
		r = k.registrations[len(k.registrations)-1]
		return r, r.replaced
	}
	return nil, nil
}

// beginCall counts a call of a registration, unless it isn't the newest of its name any more.
func (d *Drivers) beginCall(name string, r *registration) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	k := d.names[name]
	if k == nil || len(k.registrations) == 0 || k.registrations[len(k.registrations)-1] != r {
		return false
	}
	r.calls++
	return true
}

// endCall counts the end of a call, and closes the connection if it was the last one of a registration that is gone.
func (d *Drivers) endCall(r *registration) {
	d.mu.Lock()
	r.calls--
	unused := r.gone && r.calls == 0
	d.mu.Unlock()
	if unused {
		_ = r.conn.Close() // it fails only for a connection that is closed already
	}
}

// has reports whether a driver of this name has registered.
func (d *Drivers) has(name string) bool {
	r, _ := d.newest(name)
	return r != nil
}

// note records that the named driver may hold a volume in this directory. If name is empty, no driver holds it any
// more.
func (d *Drivers) note(dir, name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if name == "" {
		delete(d.volumes, dir)
		delete(d.uncertain, dir)
	} else {
		d.volumes[dir] = name
	}
}

// setUncertain records whether the driver may have released the volume in this directory although the volume's record
// doesn't say that a release has begun.
func (d *Drivers) setUncertain(dir string, uncertain bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if uncertain {
		d.uncertain[dir] = true
	} else {
		delete(d.uncertain, dir)
	}
}

// isUncertain reports whether the release of the volume in this directory has begun.
func (d *Drivers) isUncertain(dir string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.uncertain[dir]
}
