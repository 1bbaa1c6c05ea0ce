package pressure

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
)

// Signal is an eviction signal, by its name in KubeletConfiguration.
type Signal string

// The signals of Kubernetes 1.36 that this package evaluates.
const (
	NodeMemory  Signal = "memory.available"
	PodsMemory  Signal = "allocatableMemory.available" // of the group of all pods
	NodeBytes   Signal = "nodefs.available"
	NodeInodes  Signal = "nodefs.inodesFree"
	ImageBytes  Signal = "imagefs.available"
	ImageInodes Signal = "imagefs.inodesFree"
	Processes   Signal = "pid.available"
)

// Resource returns the resource of the signal, by its name in messages.
func (s Signal) Resource() v1.ResourceName { return kindOf(s).resource }

// Layout describes which of the node's files, the images and the containers' writable layers are on the same file
// system.
type Layout int

const (
	// OneFileSystem: images and containers are on the node's file system.
	OneFileSystem Layout = iota
	// RuntimeApart: images and containers are on a file system of their own.
	RuntimeApart
	// ImagesApart: only images are on a file system of their own.
	ImagesApart
)

// Reclaim is a step that frees disk space without ending a pod.
type Reclaim string

const (
	DeadContainers Reclaim = "dead containers"
	UnusedImages   Reclaim = "unused images"
)

// kind describes a signal: its resource, its condition, and how pods are ranked for it.
type kind struct {
	signal Signal
	// resource is the resource as messages, events and metrics name it.
	resource v1.ResourceName
	format   resource.Format
	// condition is the node condition of the signal. pressure returns the field for that condition.
	condition v1.NodeConditionType
	pressure  func(*admission.Pressure) *bool
	// reclaims returns the steps that are taken before a pod is ended.
	reclaims func(Layout) []Reclaim
	// used returns a pod's use, and request its request. request is nil if the resource can't be requested.
	used    func(*Pod, Layout) int64
	request func(*Pod) int64
	// container returns the use and the request of one container, for the message. It may be nil.
	container func(*Container, Layout) (used, request int64)
	// needs are the figures by which pods are ranked.
	needs Needs
	// fill is the amount of the resource that one program may use up per second.
	fill float64
}

// kinds are the signals in the order in which they are handled: memory comes before others.
func kinds() []kind {
	memory := kind{resource: v1.ResourceMemory, format: resource.BinarySI, condition: v1.NodeMemoryPressure,
		pressure: func(p *admission.Pressure) *bool { return &p.Memory },
		reclaims: func(Layout) []Reclaim { return nil },
		used:     func(p *Pod, _ Layout) int64 { return p.Memory },
		request:  func(p *Pod) int64 { return p.MemoryRequest },
		container: func(c *Container, _ Layout) (used, request int64) {
			return c.Memory, c.MemoryRequest
		},
		needs: Needs{Memory: true}, fill: 100 << 20,
	}
	disk := kind{condition: v1.NodeDiskPressure, needs: Needs{Disk: true}, fill: 100 << 20,
		pressure: func(p *admission.Pressure) *bool { return &p.Disk }}
	onNode, onImages := disk, disk
	onNode.reclaims = func(l Layout) []Reclaim {
		switch l {
		case OneFileSystem:
			return []Reclaim{DeadContainers, UnusedImages}
		case ImagesApart:
			return []Reclaim{DeadContainers}
		default:
			return nil
		}
	}
	onImages.reclaims = func(l Layout) []Reclaim {
		if l == ImagesApart {
			return []Reclaim{UnusedImages}
		}
		return []Reclaim{DeadContainers, UnusedImages}
	}
	bytes := func(k kind, signal Signal, of func(*Pod, Layout) Space, part func(*Container, Layout) Space) kind {
		k.signal, k.resource, k.format = signal, v1.ResourceEphemeralStorage, resource.BinarySI
		k.used = func(p *Pod, l Layout) int64 { return of(p, l).Bytes }
		k.request = func(p *Pod) int64 { return p.StorageRequest }
		k.container = func(c *Container, l Layout) (used, request int64) { return part(c, l).Bytes, c.StorageRequest }
		return k
	}
	inodes := func(k kind, signal Signal, of func(*Pod, Layout) Space) kind {
		k.signal, k.resource, k.format, k.fill = signal, "inodes", resource.DecimalSI, 5000
		k.used = func(p *Pod, l Layout) int64 { return of(p, l).Inodes }
		return k
	}
	ofAll := memory
	memory.signal, ofAll.signal = NodeMemory, PodsMemory
	return []kind{
		memory, ofAll,
		bytes(onNode, NodeBytes, (*Pod).onNode, (*Container).onNode), inodes(onNode, NodeInodes, (*Pod).onNode),
		bytes(onImages, ImageBytes, (*Pod).onImages, (*Container).onImages),
		inodes(onImages, ImageInodes, (*Pod).onImages),
		{signal: Processes, resource: "pids", format: resource.DecimalSI, condition: v1.NodePIDPressure,
			pressure: func(p *admission.Pressure) *bool { return &p.PIDs },
			reclaims: func(Layout) []Reclaim { return nil },
			used:     func(p *Pod, _ Layout) int64 { return p.Processes }, needs: Needs{Processes: true}, fill: 2000},
	}
}

// kindOf returns the kind of a signal. The signal has to be one of kinds.
func kindOf(s Signal) kind {
	all := kinds()
	if i := slices.IndexFunc(all, func(k kind) bool { return k.signal == s }); i >= 0 {
		return all[i]
	}
	return kind{}
}

// Space is a number of bytes and of inodes.
type Space struct{ Bytes, Inodes int64 }

func (s Space) plus(o Space) Space { return Space{s.Bytes + o.Bytes, s.Inodes + o.Inodes} }

// Pod is a pod that may be ended, with its use. Amounts that couldn't be measured are 0.
type Pod struct {
	UID             string
	Namespace, Name string
	Priority        int32
	// Critical pods are never ended.
	Critical bool
	// Ending means that the pod already has to end.
	Ending bool
	// Version distinguishes the pod from a later one with the same UID.
	Version string
	// Active means that a part of the pod uses resources, even if no container runs: containers may wait on a full disk
	// to be restarted.
	Active bool
	// Grace is the pod's own termination grace period.
	Grace time.Duration
	// MemoryRequest and StorageRequest are the pod's requests in bytes, as the scheduler counts them. OfPod are the
	// resources for which the pod itself has a request.
	MemoryRequest, StorageRequest int64
	OfPod                         []v1.ResourceName
	// Memory is the working set in bytes, Processes the number of processes.
	Memory, Processes int64
	// Volumes are the volumes on the node's file system.
	Volumes    Space
	Containers []Container
}

// Container is a container of a Pod, with its use.
type Container struct {
	Name                          string
	MemoryRequest, StorageRequest int64
	Memory                        int64
	Layer, Logs                   Space
}

func (p *Pod) onNode(l Layout) Space {
	sum := p.Volumes
	for i := range p.Containers {
		sum = sum.plus(p.Containers[i].onNode(l))
	}
	return sum
}

func (p *Pod) onImages(l Layout) (sum Space) {
	if l == OneFileSystem {
		sum = p.Volumes
	}
	for i := range p.Containers {
		sum = sum.plus(p.Containers[i].onImages(l))
	}
	return sum
}

func (c *Container) onNode(l Layout) Space {
	if l == RuntimeApart {
		return c.Logs
	}
	return c.Layer.plus(c.Logs)
}

func (c *Container) onImages(l Layout) Space {
	switch l {
	case OneFileSystem:
		return c.Layer.plus(c.Logs)
	case RuntimeApart:
		return c.Layer
	default:
		return Space{}
	}
}
