// Package node is the state of an in-memory container runtime, and its CRI services: sandboxes, containers that run
// scripted programs, an image store, container logs and events. It has controls for states that no CRI call can
// cause, and an Injector that makes calls fail, hang or lose their answers.
package node

import (
	"crypto/rand"
	"encoding/hex"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The labels by which the kubelet and other CRI clients record the pod and the name of a container.
const (
	labelPodUID        = "io.kubernetes.pod.uid"
	labelContainerName = "io.kubernetes.container.name"
)

// eventKeep is how long containerd keeps events for the next subscriber if there is none.
const eventKeep = 5 * time.Minute

// Options configure a Node. All fields except WriteLogs are required.
type Options struct {
	// PodCIDR is the IPv4 network of sandboxes' addresses.
	PodCIDR string
	// Images is the store of containers' images.
	Images *Store
	// WriteLogs creates the log files specified with CreateContainer when the container starts.
	WriteLogs bool
	// Program returns the behaviour of containers to which no Behave applies.
	Program func(command []string) Behaviour
	// EventQueue is how many events each reader may fall behind before it misses some.
	EventQueue int
	// CgroupDriver is the driver that RuntimeConfig reports.
	CgroupDriver runtimeapi.CgroupDriver
}

// Node is the runtime's state. It serves the CRI RuntimeService. All methods may be called concurrently.
type Node struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	options Options
	events  *fanout[*runtimeapi.ContainerEventResponse]

	mu         sync.Mutex
	ips        *addressPool
	sandboxes  map[string]*sandbox
	containers map[string]*container
	order      uint64            // creation order of the next container
	names      map[string]string // reserved sandbox and container names -> ID
	behaviours map[string]Behaviour
	exec       ExecFunc
	running    map[string]string // pod UID/container name -> ID of the running instance
	violations []string
	conditions []*runtimeapi.RuntimeCondition // nil: all are true
	down       bool                           // the runtime's process is down
	dropEvents bool
	noEvents   bool
	sleepers   sync.WaitGroup // exits that are being executed
}

// New returns a Node without sandboxes. It fails on an invalid PodCIDR.
func New(o Options) (*Node, error) {
	ips, err := newAddressPool(o.PodCIDR)
	if err != nil {
		return nil, err
	}
	return &Node{
		options:    o,
		ips:        ips,
		events:     newFanout[*runtimeapi.ContainerEventResponse](o.EventQueue, eventKeep),
		sandboxes:  make(map[string]*sandbox),
		containers: make(map[string]*container),
		names:      make(map[string]string),
		behaviours: make(map[string]Behaviour),
		running:    make(map[string]string),
	}, nil
}

// sandbox is one pod sandbox. Its status and item are immutable and replaced together on change, so that answers
// and events may share them.
type sandbox struct {
	name       string
	config     *runtimeapi.PodSandboxConfig
	ip         string
	containers map[string]*container
	status     *runtimeapi.PodSandboxStatus
	item       *runtimeapi.PodSandbox
}

// container is one container instance; see sandbox for status and item.
type container struct {
	name      string
	order     uint64 // increases with each created container
	sandbox   *sandbox
	config    *runtimeapi.ContainerConfig
	behaviour Behaviour
	status    *runtimeapi.ContainerStatus
	item      *runtimeapi.Container
	memory    uint64        // usage while it runs, in bytes
	bytes     uint64        // in its writable layer
	inodes    uint64        // in its writable layer
	signalled bool          // the stop signal was sent
	exit      *time.Timer   // the scheduled exit, nil if there is none
	stopped   chan struct{} // closed when it has exited
	log       *logFile
}

func (s *sandbox) id() string { return s.status.Id }

func (s *sandbox) ready() bool {
	return s.status.State == runtimeapi.PodSandboxState_SANDBOX_READY
}

// set changes the sandbox's status.
func (s *sandbox) set(change func(*runtimeapi.PodSandboxStatus)) {
	old := s.status
	s.status = &runtimeapi.PodSandboxStatus{
		Id: old.Id, Metadata: old.Metadata, State: old.State, CreatedAt: old.CreatedAt, Network: old.Network,
		Linux: old.Linux, Labels: old.Labels, Annotations: old.Annotations, RuntimeHandler: old.RuntimeHandler,
	}
	change(s.status)
	s.item = &runtimeapi.PodSandbox{
		Id: s.status.Id, Metadata: s.status.Metadata, State: s.status.State, CreatedAt: s.status.CreatedAt,
		Labels: s.status.Labels, Annotations: s.status.Annotations, RuntimeHandler: s.status.RuntimeHandler,
	}
}

func (c *container) id() string { return c.status.Id }

func (c *container) is(state runtimeapi.ContainerState) bool { return c.status.State == state }

// set changes the container's status.
func (c *container) set(change func(*runtimeapi.ContainerStatus)) {
	old := c.status
	c.status = &runtimeapi.ContainerStatus{
		Id: old.Id, Metadata: old.Metadata, State: old.State, CreatedAt: old.CreatedAt, StartedAt: old.StartedAt,
		FinishedAt: old.FinishedAt, ExitCode: old.ExitCode, Image: old.Image, ImageRef: old.ImageRef,
		Reason: old.Reason, Message: old.Message, Labels: old.Labels, Annotations: old.Annotations,
		Mounts: old.Mounts, LogPath: old.LogPath, Resources: old.Resources, ImageId: old.ImageId, User: old.User,
		StopSignal: old.StopSignal,
	}
	change(c.status)
	c.item = &runtimeapi.Container{
		Id: c.status.Id, PodSandboxId: c.sandbox.id(), Metadata: c.status.Metadata,
		// As in containerd, a list has the image's ID where a status has its digest.
		Image: c.config.GetImage(), ImageRef: c.status.ImageId, ImageId: c.status.ImageId,
		State: c.status.State, CreatedAt: c.status.CreatedAt, Labels: c.status.Labels,
		Annotations: c.status.Annotations,
	}
}

// slot identifies the container in a pod's spec that c is an instance of.
func (c *container) slot() string {
	uid, name := c.config.GetLabels()[labelPodUID], c.config.GetLabels()[labelContainerName]
	if uid == "" || name == "" {
		uid, name = c.sandbox.config.GetMetadata().GetUid(), c.config.GetMetadata().GetName()
	}
	return uid + "/" + name
}

func newID() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return hex.EncodeToString(b[:])
}
