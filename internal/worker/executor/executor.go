// Package executor carries out the core's actions with calls to the runtime, the volumes, the cgroups and the log
// directories. It updates the observed state with its changes, so that the next decision never sees an older state.
package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/kit/gate"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/runtime/userns"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// Runtime is the part of the container runtime that actions use.
type Runtime interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error)
	PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig,
		sandbox *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	UpdatePodSandboxResources(ctx context.Context, id string, overhead,
		resources *runtimeapi.LinuxContainerResources) error
	UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error
	// ContainerStats may return an empty result for a container that doesn't run.
	ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error)
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
}

// Observer receives an action's changes before the runtime reports them.
type Observer interface {
	SandboxCreated(uid types.UID, name, namespace string, sb pod.Sandbox)
	SandboxStopped(id string)
	SandboxRemoved(id string)
	// ContainerCreated sets the current state of a container; a later state replaces an earlier one.
	ContainerCreated(uid types.UID, name, namespace string, c pod.Container)
	ContainerRemoved(id string)
	// RequestRefresh requests that the pod's state be read from the runtime again, because the observed state may be
	// wrong. It doesn't wait.
	RequestRefresh(uid types.UID)
}

// Volumes creates and removes the volumes of pods.
type Volumes interface {
	// Prepare creates the pod's directory and volumes. p is the pod with its allocated resources, objects its view of
	// API objects.
	Prepare(ctx context.Context, p *v1.Pod, objects object.View) error
	// PrepareContainer creates the volumes that one container of a prepared pod uses, if there are any that Prepare
	// hasn't created.
	PrepareContainer(ctx context.Context, p *v1.Pod, c *v1.Container, objects object.View) error
	// Images waits for the images that the container mounts.
	Images(ctx context.Context, p *v1.Pod, c *v1.Container) error
	// Mounts returns the container's mounts and the host path of its termination message file.
	Mounts(ctx context.Context, r manager.MountRequest) (mounts []*runtimeapi.Mount, message string, err error)
	// Recheck fails if host paths that the container mounts don't exist any more.
	Recheck(ctx context.Context, p *v1.Pod, c *v1.Container) error
	// BlockVolumes returns the container's block volumes by volume name.
	BlockVolumes(p *v1.Pod, c *v1.Container) (map[string]pod.BlockVolume, error)
	// Groups returns the supplemental groups that the pod's volumes require for its containers.
	Groups(p *v1.Pod) []int64
	// EmptyDir returns the host path of one of the pod's emptyDir volumes.
	EmptyDir(p *v1.Pod, name string) (string, error)
	// Release removes the volumes of a finished pod that stays in its source.
	Release(ctx context.Context, uid types.UID) error
	Clean(ctx context.Context, uid types.UID) error
	Orphans() ([]types.UID, error)
}

// Cgroups creates, resizes and removes the cgroups of pods.
type Cgroups interface {
	CgroupParent(p *v1.Pod) string
	Ensure(ctx context.Context, p *v1.Pod, l allocated.Limits) error
	Resize(ctx context.Context, p *v1.Pod, l allocated.Limits) error
	Remove(ctx context.Context, uid types.UID) error
	// Thaw thaws the cgroup of a container, or those of all the pod's containers if container is empty.
	Thaw(ctx context.Context, uid types.UID, container string) error
}

// Users allocates ranges of the host's user IDs to pods with a user namespace (KEP-127).
type Users interface {
	// Ensure allocates a range to the pod if it has none; Get returns the pod's range.
	Ensure(types.UID) (userns.Range, error)
	Get(types.UID) (userns.Range, error)
	Release(types.UID) error
}

// Allocations allocates resources to pods.
type Allocations interface {
	Get(types.UID) *pod.Allocation
	// Admit admits a new pod and returns its allocation, or fails with a *pod.Failure. Allocated returns the
	// allocation of a pod that was admitted before.
	Admit(ctx context.Context, p *v1.Pod) (*pod.Allocation, error)
	Allocated(p *v1.Pod) (*pod.Allocation, error)
	// Resize allocates the resources of the pod's spec, or fails with a *pod.Failure.
	Resize(p *v1.Pod) (*pod.Allocation, error)
	// Assigned returns the resources, such as devices, that only this container may use; its later instances get the
	// same resources. PreStart prepares them for the next instance.
	Assigned(ctx context.Context, p *v1.Pod, c *v1.Container) (translate.Devices, error)
	PreStart(ctx context.Context, p *v1.Pod, c *v1.Container) error
	// Starting is called right before the container with this ID starts, and started afterwards.
	Starting(ctx context.Context, p *v1.Pod, c *v1.Container, id string) (started func(), err error)
	// Unthrottled says that the pod as a whole has no CPU limit, as a container has CPUs of its own.
	Unthrottled(*v1.Pod) bool
	// MarkActuated says that the pod's allocation is in force.
	MarkActuated(types.UID)
	// MarkFailed says that the pod's allocation couldn't be put in force.
	MarkFailed(types.UID)
	// Release frees the resources of a pod that has ended for good; Forget also drops the pod.
	Release(types.UID)
	Forget(types.UID)
}

// Records stores state that has to survive the agent.
type Records interface {
	Load(uid types.UID, kind string, v any) (found bool, err error)
	Save(uid types.UID, kind string, v any, durable bool) error
	Remove(uid types.UID) error
	UIDs() ([]types.UID, error)
}

// Tasks removes leftovers of which the runtime has no record and that block the removal of a container. For a runtime
// without such leftovers it does nothing.
type Tasks interface {
	// Left reports whether a removal failed because of such leftovers.
	Left(err error) bool
	// Clear ends and removes the leftovers of a container that has ended.
	Clear(ctx context.Context, container string) error
}

// Hooks runs lifecycle hooks.
type Hooks interface {
	// Hook runs the hook until the hook has completed or ctx is done.
	Hook(ctx context.Context, t handler.Target, hook *v1.LifecycleHandler) error
}

// DNS provides the DNS configuration of pods.
type DNS interface {
	// For returns the pod's DNS configuration, and the events to record when the pod gets a sandbox.
	For(p *v1.Pod) (*runtimeapi.DNSConfig, []pod.Event, error)
}

// Recorder records events.
type Recorder interface {
	Event(p *v1.Pod, e pod.Event)
}

// Images pulls images if necessary.
type Images interface {
	Ensure(ctx context.Context, r pull.Request) (pull.Image, error)
}

// Logs creates and removes the directories and links of container logs.
type Logs interface {
	Create(p layout.Pod, container string) error
	Link(p layout.Pod, i layout.Instance) error
	// Retire keeps the log of a removed instance, and removes the logs of earlier instances.
	Retire(p layout.Pod, i layout.Instance) error
	Remove(p layout.Pod, i layout.Instance) error
	RemovePod(p layout.Pod) error
	Attempts(p layout.Pod) (map[string]int, error)
	Orphans() ([]layout.Pod, error)
	RemoveDeadLinks() error
}

// Meter counts starts and removals.
type Meter interface {
	// SandboxStarted is called for each attempt to start a sandbox, with the handler of its RuntimeClass and whether
	// the pod has its own user namespace.
	SandboxStarted(handler string, took time.Duration, userns, failed bool)
	// ContainerStarted is called for each attempt to start a container. containerType is a pod.ContainerType.
	ContainerStarted(containerType string, failed bool)
	// RemovedContainer is called for each container that was removed individually, not with its sandbox.
	RemovedContainer()
	// OrphanCleaned says that the leftovers of a pod without a source were cleaned up, or couldn't be.
	OrphanCleaned(uid types.UID, failed bool)
}

// Config is the configuration of an Executor. Every field but Reserve and DiskFailed is required.
type Config struct {
	Runtime  Runtime
	Observer Observer
	Volumes  Volumes
	Cgroups  Cgroups
	DNS      DNS
	Images   Images
	Objects  object.Finder
	Logs     Logs
	Meter    Meter
	Hooks    Hooks
	Tasks    Tasks
	Recorder Recorder
	Ports    Ports
	// Allocations allocates resources, Records stores state that survives the agent.
	Allocations Allocations
	Records     Records
	// Settings returns the current settings for new containers. They have to be complete before the first action,
	// and a returned value mustn't change.
	Settings func() *translate.Settings
	// Features returns the features of the runtime; nil while they are unknown.
	Features func() *translate.Features
	Users    Users
	// HostIPs returns the node's current addresses, the primary one first.
	HostIPs func() []string
	// Allocatable returns the node's current allocatable resources.
	Allocatable func() v1.ResourceList
	// Reserve is released if the disk is too full for an action that ends something.
	Reserve *room.Reserve
	// DiskFailed is called with the error of each failed action; it may be nil.
	DiskFailed func(error)
	// Parallel limits how many sandboxes and containers are created or started at once, and separately how many dead
	// sandboxes are stopped at once: more would only make each of them slower.
	Parallel int
	Log      logr.Logger
}

// Executor carries out actions. It is safe for concurrent use.
type Executor struct {
	cfg  Config
	gate *gate.Gate
	// stops limits how many dead sandboxes are stopped at once. It is separate from gate so that a hanging stop
	// blocks no starts. leftoverStops is for the sandboxes of pods without a source.
	stops, leftoverStops *gate.Gate
	removals             *removals

	mu sync.Mutex
	// sandboxes has the newest sandbox of each pod. An entry is made when the sandbox is created, or with the first
	// container in it after a restart of the agent, and removed when the pod is cleaned up.
	sandboxes map[types.UID]knownSandbox
}

// New returns an executor.
func New(cfg Config) *Executor {
	return &Executor{cfg: cfg, gate: gate.New(cfg.Parallel), stops: gate.New(cfg.Parallel),
		leftoverStops: gate.New(mostRemovals), removals: newRemovals(), sandboxes: map[types.UID]knownSandbox{}}
}

// Priorities at the gate: actions that are nearest to a running container go first, so that pods become ready one
// after the other instead of all at the end.
const (
	prioritySandbox = iota
	priorityCreate
	priorityStart
)

// Do carries out one action and returns its result. d is nil for a pod without a source, which can only be stopped
// and removed.
func (r *Executor) Do(ctx context.Context, d *pod.Desired, o *pod.Observed, uid types.UID, a pod.Action) pod.Result {
	began := time.Now()
	var id, message string
	act := func() (err error) {
		id, message, err = r.do(ctx, d, o, uid, a)
		return err
	}
	var err error
	if ends(a) {
		err = r.cfg.Reserve.Spend(act)
	} else {
		err = act()
	}
	for err != nil && r.informed(ctx, uid, failure(a, err), began) {
		began = time.Now()
		err = act()
	}
	if err != nil {
		if r.cfg.DiskFailed != nil {
			r.cfg.DiskFailed(err)
		}
		if ctx.Err() == nil && (a.Kind == pod.ResizePod || a.Kind == pod.ResizeContainer) {
			r.cfg.Allocations.MarkFailed(uid)
		}
		switch a.Kind {
		case pod.AdmitPod, pod.PreparePod, pod.EnsureImage, pod.ReleaseVolumes, pod.CleanPod, pod.SaveCheckpoint,
			pod.Allocate, pod.ResizePod, pod.PreStop, pod.PostStart:
		default:
			// The action may have had its effect in spite of the failure, or the event of a removal may have been lost.
			r.cfg.Observer.RequestRefresh(uid)
		}
		return pod.Result{Failure: oneLine(failure(a, err))}
	}
	return pod.Result{ID: id, Message: message}
}

// ends reports whether an action ends or removes something, or records that the pod has to end.
func ends(a pod.Action) bool {
	switch a.Kind {
	case pod.StopContainer, pod.RemoveContainer, pod.StopSandbox, pod.RemoveSandbox, pod.ReleaseVolumes, pod.CleanPod:
		return true
	case pod.SaveCheckpoint:
		k := a.Checkpoint
		return k.Termination != nil || k.Terminal != "" || k.Final != nil || !k.EndBy.IsZero()
	}
	return false
}

// informed reports whether a failed action should be repeated at once: it failed because an object hadn't been fetched
// from the API server yet, and an object of the pod has arrived since the action began.
func (r *Executor) informed(ctx context.Context, uid types.UID, f *pod.Failure, began time.Time) bool {
	return f.Unknown && ctx.Err() == nil && r.cfg.Objects.Await(ctx, uid, began)
}

func (r *Executor) do(ctx context.Context, d *pod.Desired, o *pod.Observed, uid types.UID,
	a pod.Action) (id, message string, err error) {
	var p *v1.Pod
	if d != nil {
		p = d.Pod
	}
	c, err := containerOf(p, a)
	if err != nil {
		return "", "", err
	}
	switch a.Kind {
	case pod.AdmitPod:
		_, err = r.cfg.Allocations.Admit(ctx, p)
	case pod.PreparePod:
		err = r.prepare(ctx, d, a)
	case pod.CreateSandbox:
		id, err = r.createSandbox(ctx, d, a)
	case pod.StopSandbox:
		r.thaw(ctx, uid, "")
		err = r.stopSandbox(ctx, d, o, a)
	case pod.RemoveSandbox:
		err = r.removeSandbox(ctx, d, o, a)
	case pod.EnsureImage:
		id, message, err = r.ensureImage(ctx, d, c, a)
	case pod.CreateContainer:
		id, err = r.createContainer(ctx, d, o, a)
	case pod.StartContainer:
		err = r.startContainer(ctx, p, c, a)
	case pod.PostStart:
		err = r.hook(ctx, p, c, o, a)
	case pod.PreStop:
		r.thaw(ctx, uid, a.ID)
		err = r.hook(ctx, p, c, o, a)
	case pod.StopContainer:
		r.thaw(ctx, uid, a.ID)
		err = r.stopContainer(ctx, a)
	case pod.RemoveContainer:
		err = r.removeContainer(ctx, o, a)
	case pod.Allocate:
		_, err = r.cfg.Allocations.Resize(p)
	case pod.ResizePod:
		err = r.resizePod(ctx, p, o, a)
	case pod.ResizeContainer:
		err = r.resizeContainer(ctx, p, c, a)
	case pod.SaveCheckpoint:
		err = r.saveCheckpoint(uid, a.Checkpoint)
	case pod.ReleaseVolumes:
		volumes, group := r.cfg.Volumes.Release(ctx, uid), r.cfg.Cgroups.Remove(ctx, uid)
		if group == nil { // while the cgroup exists, its memory and processes use resources
			r.cfg.Allocations.Release(uid)
		}
		if err = errors.Join(volumes, group); err == nil {
			r.cfg.Objects.Forget(uid)
		}
	case pod.CleanPod:
		err = r.clean(ctx, p, uid)
		if p == nil && ctx.Err() == nil {
			r.cfg.Meter.OrphanCleaned(uid, err != nil)
		}
	default:
		err = fmt.Errorf("no such action: %s", a.Kind)
	}
	return id, message, err
}

// containerOf is the container of the spec that an action concerns. It is nil if the action concerns no container, or
// an instance of a container that the spec doesn't have.
func containerOf(p *v1.Pod, a pod.Action) (*v1.Container, error) {
	if p == nil {
		return nil, nil
	}
	c := pod.ContainerNamed(p, a.Container)
	switch a.Kind {
	case pod.EnsureImage, pod.CreateContainer, pod.StartContainer, pod.PostStart, pod.PreStop, pod.ResizeContainer:
		if c == nil {
			return nil, fmt.Errorf("pod %s/%s has no container %s", p.Namespace, p.Name, a.Container)
		}
	}
	return c, nil
}

// LoggedAttempts returns, for each container, the lowest attempt number that a new instance may have without using the
// name of a log on disk.
func (r *Executor) LoggedAttempts(p *v1.Pod) map[string]int {
	attempts, err := r.cfg.Logs.Attempts(logsOf(p))
	if err != nil {
		// A restart count that starts at 0 again is better than a pod that doesn't start.
		r.cfg.Log.Error(err, "Can't find restart counts from the logs on disk", "pod", klog.KObj(p))
	}
	return attempts
}

// Leftovers lists the pods that have a directory or a record under the root directory: prepare creates the directory
// first and clean removes it last. Other cgroups and logs aren't searched for, because they may belong to another
// agent.
func (r *Executor) Leftovers() ([]types.UID, error) {
	uids, err := r.cfg.Volumes.Orphans()
	saved, errSaved := r.cfg.Records.UIDs()
	for _, uid := range saved {
		if !slices.Contains(uids, uid) {
			uids = append(uids, uid)
		}
	}
	return uids, errors.Join(err, errSaved)
}

func (r *Executor) prepare(ctx context.Context, d *pod.Desired, a pod.Action) error {
	p := d.Pod
	if err := unclaimed(p); err != nil {
		return err
	}
	// The allocation comes first, because volumes show it to the pod.
	allowed, err := r.cfg.Allocations.Allocated(p)
	if err != nil {
		return err
	}
	if err := r.cfg.Volumes.Prepare(ctx, allocated.Apply(p, allowed), r.cfg.Objects.For(d)); err != nil {
		return err
	}
	if a.PodResources != nil {
		allowed = a.PodResources
	}
	if err := r.cfg.Cgroups.Ensure(ctx, p, r.limits(p, allowed)); err != nil {
		return &pod.Failure{Reason: pod.ReasonFailedCreatePodContainer, Message: err.Error()}
	}
	for name := range pod.ContainerNames(p) {
		if err := r.cfg.Logs.Create(logsOf(p), name); err != nil {
			return err
		}
	}
	return nil
}

// limits returns the limits of the pod's cgroup.
func (r *Executor) limits(p *v1.Pod, a *pod.Allocation) allocated.Limits {
	l := allocated.PodLimits(p, a)
	if r.cfg.Allocations.Unthrottled(p) {
		l.CPULimitMilli = 0
	}
	return l
}

// unclaimed is the failure of a pod that uses ResourceClaims (DRA, KEP-4381), which aren't supported on this node.
// The pod waits, as with a kubelet without the driver, and never runs without its devices. A scheduler also creates
// claims for extended resources (KEP-5004).
func unclaimed(p *v1.Pod) error {
	var names []string
	for i := range p.Spec.ResourceClaims {
		names = append(names, p.Spec.ResourceClaims[i].Name)
	}
	if s := p.Status.ExtendedResourceClaimStatus; s != nil {
		names = append(names, s.ResourceClaimName)
	}
	if len(names) == 0 {
		return nil
	}
	return &pod.Failure{Reason: pod.ReasonFailedPrepareDynamicResources, Permanent: true,
		Message: fmt.Sprintf("Failed to prepare dynamic resources: "+
			"ResourceClaims (%s) aren't supported on this node yet, and the pod doesn't start without its devices: "+
			"run it on a node with a kubelet, or without spec.resourceClaims", strings.Join(names, ", "))}
}

// clean removes the files that prepare created and the pod's records. The pod's directory is removed last, so that a
// later agent finds an unfinished clean-up.
func (r *Executor) clean(ctx context.Context, p *v1.Pod, uid types.UID) error {
	if !nameable(uid) { // the UID can't be part of a file's name, so there are no files
		r.cfg.Allocations.Release(uid)
		r.cfg.Allocations.Forget(uid)
		r.forgetSandbox(uid)
		r.cfg.Objects.Forget(uid)
		return nil
	}
	group := absent(r.cfg.Cgroups.Remove(ctx, uid))
	if group == nil { // the resources are released even if the disk can't be written
		r.cfg.Allocations.Release(uid)
	}
	if err := errors.Join(group, r.removeLogs(p, uid), r.cfg.Records.Remove(uid)); err != nil {
		return err
	}
	r.cfg.Allocations.Forget(uid)
	r.forgetSandbox(uid)
	if err := r.cfg.Users.Release(uid); err != nil {
		return err
	}
	if err := r.cfg.Volumes.Clean(ctx, uid); err != nil {
		return err
	}
	r.cfg.Objects.Forget(uid)
	return nil
}

// nameable reports whether the UID is valid as the name of a directory.
func nameable(uid types.UID) bool {
	return safeopen.Check("pod UID", string(uid)) == nil && len(uid) <= unix.NAME_MAX
}

// absent returns err, the error of a removal. It returns nil if the file name is too long, because no such file can
// exist. Names combine several parts, each of which may be up to the limit.
func absent(err error) error {
	if errors.Is(err, unix.ENAMETOOLONG) {
		return nil
	}
	return err
}

// removeLogs removes the pod's logs. For a pod without a source only the UID is available, and an agent that was
// killed while it removed the pod may have left links.
func (r *Executor) removeLogs(p *v1.Pod, uid types.UID) error {
	if p != nil {
		return r.cfg.Logs.RemovePod(logsOf(p))
	}
	all, err := r.cfg.Logs.Orphans()
	for _, l := range all {
		if l.UID == uid {
			err = errors.Join(err, r.cfg.Logs.RemovePod(l))
		}
	}
	return errors.Join(err, r.cfg.Logs.RemoveDeadLinks())
}

func logsOf(p *v1.Pod) layout.Pod {
	return layout.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// removeLog removes the log of a removed instance.
func (r *Executor) removeLog(o *pod.Observed, c *pod.Container) error {
	if !nameable(o.UID) {
		return nil // no such log can exist
	}
	err := r.cfg.Logs.Remove(layout.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.UID},
		layout.Instance{Container: c.Name, Attempt: c.Attempt, ID: c.ID})
	if err != nil {
		return fmt.Errorf("log of container %s: %w", c.Name, err)
	}
	return nil
}
