// Package effects carries out the core's actions: it turns each into calls to
// the runtime, the volumes, the control groups and the log folders, and tells
// the observed state what it brought about, so that the next decision never sees
// a world from before it.
package effects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/gate"
	"github.com/deckhand-node/deckhand/internal/grant"
	"github.com/deckhand-node/deckhand/internal/handler"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/podlogdirs"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/userns"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

// Runtime is what effects ask of the container runtime.
type Runtime interface {
	RunPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error)
	PodSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error)
	StopPodSandbox(ctx context.Context, id string) error
	RemovePodSandbox(ctx context.Context, id string) error
	CreateContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
	StartContainer(ctx context.Context, id string) error
	StopContainer(ctx context.Context, id string, grace time.Duration) error
	RemoveContainer(ctx context.Context, id string) error
	ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error)
	UpdateContainerResources(ctx context.Context, id string, r *runtimeapi.LinuxContainerResources) error
	// ContainerStats may have nothing to tell of a container that doesn't run.
	ContainerStats(ctx context.Context, id string) (*runtimeapi.ContainerStats, error)
	ImageStatus(ctx context.Context, image *runtimeapi.ImageSpec) (*runtimeapi.Image, error)
}

// Facts takes in what an effect brought about, before the runtime tells of it.
type Facts interface {
	SandboxCreated(uid types.UID, name, namespace string, sb pod.Sandbox)
	SandboxStopped(id string)
	SandboxRemoved(id string)
	// ContainerCreated takes in a container as it is known now; a later state replaces an earlier one.
	ContainerCreated(uid types.UID, name, namespace string, c pod.Container)
	ContainerRemoved(id string)
	// Doubt says that what is known of the pod may be wrong, so that the runtime is asked. It doesn't wait.
	Doubt(uid types.UID)
}

// Volumes makes and removes what pods mount.
type Volumes interface {
	// Prepare makes the pod's folder and volumes. p has the resources it was granted.
	Prepare(ctx context.Context, p *v1.Pod) error
	// Mounts returns the container's mounts and the host path of its termination message file.
	Mounts(ctx context.Context, r manager.MountRequest) (mounts []*runtimeapi.Mount, message string, err error)
	// BlockVolumes returns what the container has as devices, by the volumes' names.
	BlockVolumes(p *v1.Pod, c *v1.Container) (map[string]translate.BlockVolume, error)
	// Groups returns the groups that the pod's containers are to be in for its volumes' sake.
	Groups(p *v1.Pod) []int64
	// EmptyDir returns the host path of an emptyDir of the pod's.
	EmptyDir(p *v1.Pod, name string) (string, error)
	// Release removes the volumes of a pod that has run to its end and stays known.
	Release(ctx context.Context, uid types.UID) error
	Clean(ctx context.Context, uid types.UID) error
	Orphans() ([]types.UID, error)
}

// Cgroups keeps the pods' control groups.
type Cgroups interface {
	CgroupParent(p *v1.Pod) string
	Ensure(ctx context.Context, p *v1.Pod, l grant.Limits) error
	Resize(ctx context.Context, p *v1.Pod, l grant.Limits) error
	Remove(ctx context.Context, uid types.UID) error
}

// Devices hands out devices to containers.
type Devices interface {
	// For returns what the container has, which stays the same for its next instances.
	For(ctx context.Context, p *v1.Pod, c *v1.Container) (translate.Devices, error)
}

// Users hands out ranges of the host's user IDs to pods with users of their own (KEP-127).
type Users interface {
	// Ensure gives the pod a range if it has none, Get returns what it has.
	Ensure(types.UID) (userns.Range, error)
	Get(types.UID) (userns.Range, error)
	Release(types.UID) error
}

// Allocations grants resources to pods.
type Allocations interface {
	Get(types.UID) *pod.Allocation
	Admit(p *v1.Pod) (*pod.Allocation, error)
	// Resize refuses with a *pod.Failure.
	Resize(p *v1.Pod) (*pod.Allocation, error)
	// Settled says that what the pod was granted is in force.
	Settled(types.UID)
	// Release gives back what a pod has that has ended for good, Forget also forgets the pod.
	Release(types.UID)
	Forget(types.UID)
}

// Records keeps what has to outlive the agent.
type Records interface {
	Load(uid types.UID, kind string, v any) (found bool, err error)
	Save(uid types.UID, kind string, v any, durable bool) error
	Remove(uid types.UID) error
	UIDs() ([]types.UID, error)
}

// Tasks clears away what the runtime has lost sight of and what keeps a container
// from being removed. A runtime that never does that needs nothing of it.
type Tasks interface {
	// Left reports whether a removal failed for that.
	Left(err error) bool
	// Clear ends and removes what is left of a container that has ended.
	Clear(ctx context.Context, container string) error
}

// Hooks runs lifecycle hooks.
type Hooks interface {
	// Hook runs for at most timeout; 0 means no limit.
	Hook(ctx context.Context, t handler.Target, hook *v1.LifecycleHandler, timeout time.Duration) error
}

// DNS knows how pods resolve names.
type DNS interface {
	// For also returns what is to be told of it when the pod gets a sandbox.
	For(p *v1.Pod) (*runtimeapi.DNSConfig, []pod.Event, error)
}

// Recorder takes in events.
type Recorder interface {
	Event(p *v1.Pod, e pod.Event)
}

// Images makes images present.
type Images interface {
	Ensure(ctx context.Context, r image.Request) (image.Image, error)
}

// Logs keeps the folders and links of container logs.
type Logs interface {
	Create(p podlogdirs.Pod, container string) error
	Link(p podlogdirs.Pod, i podlogdirs.Instance) error
	// Retire leaves the log of an instance that is gone, and removes those before it.
	Retire(p podlogdirs.Pod, i podlogdirs.Instance) error
	Remove(p podlogdirs.Pod, i podlogdirs.Instance) error
	RemovePod(p podlogdirs.Pod) error
	Attempts(p podlogdirs.Pod) (map[string]int, error)
	Orphans() ([]podlogdirs.Pod, error)
	RemoveDeadLinks() error
}

// Meter counts what was started.
type Meter interface {
	SandboxStarted(failed bool)
	ContainerStarted(failed bool)
	// RemovedContainer counts containers that were removed by themselves, not with their sandbox.
	RemovedContainer()
	// OrphanCleaned says that what was left of a pod that nobody wants was cleaned up, or couldn't be.
	OrphanCleaned(uid types.UID, failed bool)
}

// Config is what a Runner is built from. Every field is needed.
type Config struct {
	Runtime  Runtime
	Facts    Facts
	Volumes  Volumes
	Cgroups  Cgroups
	DNS      DNS
	Images   Images
	Objects  Objects
	Logs     Logs
	Meter    Meter
	Hooks    Hooks
	Tasks    Tasks
	Recorder Recorder
	// Allocations grants resources, Records keeps what outlives the agent.
	Allocations Allocations
	Records     Records
	// Settings are those of the moment. They have to be complete before the first action,
	// and what was returned mustn't change.
	Settings func() *translate.Settings
	// Features tells what the runtime can do; nil while that isn't known.
	Features func() *translate.Features
	Users    Users
	Devices  Devices
	// HostIPs are the node's addresses, the primary one first.
	HostIPs []string
	// Allocatable is what the node has for pods at the moment.
	Allocatable func() v1.ResourceList
	// Parallel limits how many sandboxes and containers are made or started at
	// once: more only makes each of them slower.
	Parallel int
	Log      logr.Logger
}

// Runner carries out actions. It may be used by any number of goroutines.
type Runner struct {
	cfg  Config
	gate *gate.Gate
}

// New constructs a runner.
func New(cfg Config) *Runner { return &Runner{cfg: cfg, gate: gate.New(cfg.Parallel)} }

// Priorities at the gate: what is nearly done goes first, so that pods get ready
// one after the other instead of all at the end.
const (
	prioritySandbox = iota
	priorityCreate
	priorityStart
)

// Do carries out one action and tells what came of it. p may be nil for a pod
// that nobody wants, which is only ever taken down.
func (r *Runner) Do(ctx context.Context, p *v1.Pod, o *pod.Observed, uid types.UID, a pod.Action) pod.Result {
	id, message, err := r.do(ctx, p, o, uid, a)
	if err != nil {
		switch a.Kind {
		case pod.PreparePod, pod.EnsureImage, pod.ReleaseVolumes, pod.CleanPod, pod.Keep, pod.Allocate, pod.ResizePod, pod.PreStop, pod.PostStart:
		default:
			// It may have had its effect all the same, or have missed what vanished unheard.
			r.cfg.Facts.Doubt(uid)
		}
		return pod.Result{Failure: oneLine(a, failure(a, err))}
	}
	return pod.Result{ID: id, Message: message}
}

func (r *Runner) do(ctx context.Context, p *v1.Pod, o *pod.Observed, uid types.UID, a pod.Action) (id, message string, err error) {
	switch a.Kind {
	case pod.PreparePod:
		err = r.prepare(ctx, p, a)
	case pod.CreateSandbox:
		id, err = r.createSandbox(ctx, p, a)
	case pod.StopSandbox:
		err = r.stopSandbox(ctx, a)
	case pod.RemoveSandbox:
		err = r.removeSandbox(ctx, o, a)
	case pod.EnsureImage:
		id, message, err = r.ensureImage(ctx, p, a)
	case pod.CreateContainer:
		id, err = r.createContainer(ctx, p, o, a)
	case pod.StartContainer:
		err = r.startContainer(ctx, p, a)
	case pod.PostStart, pod.PreStop:
		err = r.hook(ctx, p, o, a)
	case pod.StopContainer:
		err = r.stopContainer(ctx, a)
	case pod.RemoveContainer:
		err = r.removeContainer(ctx, o, a)
	case pod.Allocate:
		_, err = r.cfg.Allocations.Resize(p)
	case pod.ResizePod:
		err = r.resizePod(ctx, p, a)
	case pod.ResizeContainer:
		err = r.resizeContainer(ctx, p, a)
	case pod.Keep:
		err = r.keep(uid, a.Kept)
	case pod.ReleaseVolumes:
		err = r.cfg.Volumes.Release(ctx, uid)
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

const reasonSandbox = "FailedCreatePodSandBox"

// failure names an error as the API does. What already has a name keeps it.
func failure(a pod.Action, err error) *pod.Failure {
	var f *pod.Failure
	if errors.As(err, &f) {
		return f
	}
	reason := "FailedSync"
	switch a.Kind {
	case pod.PreparePod:
		reason = "FailedMount"
	case pod.CreateSandbox:
		reason = reasonSandbox
	case pod.EnsureImage:
		reason = "ErrImagePull"
	case pod.CreateContainer:
		reason = "CreateContainerError"
	case pod.StartContainer:
		reason = "RunContainerError"
	case pod.StopContainer, pod.RemoveContainer:
		reason = "KillContainerError"
	case pod.StopSandbox, pod.RemoveSandbox:
		reason = "KillPodSandboxError"
	case pod.ReleaseVolumes, pod.CleanPod:
		reason = "FailedUnmount"
	case pod.ResizePod, pod.ResizeContainer:
		reason = "ResizeError"
	}
	return &pod.Failure{Reason: reason, Message: err.Error()}
}

// oneLine is the failure as a reason is told: joined errors have a line each. What a hook says stays as it is.
func oneLine(a pod.Action, f *pod.Failure) *pod.Failure {
	if a.Kind == pod.PreStop || a.Kind == pod.PostStart || !strings.Contains(f.Message, "\n") {
		return f
	}
	told := *f
	told.Message = strings.ReplaceAll(strings.TrimRight(f.Message, "\n"), "\n", "; ")
	return &told
}

// LoggedAttempts tells, by container, the least attempt of a new instance by the logs on disk.
func (r *Runner) LoggedAttempts(p *v1.Pod) map[string]int {
	attempts, err := r.cfg.Logs.Attempts(logsOf(p))
	if err != nil {
		// A restart count that begins anew is better than a pod that doesn't start.
		r.cfg.Log.Error(err, "Can't tell restart counts from the logs on disk", "pod", pod.FullName(p))
	}
	return attempts
}

// Leftovers lists the pods that have a folder under the root folder: prepare
// makes it first and clean removes it last. Control groups and logs aren't
// looked through for more, since another agent's may be among them.
func (r *Runner) Leftovers() ([]types.UID, error) {
	folders, err := r.cfg.Volumes.Orphans()
	kept, errKept := r.cfg.Records.UIDs()
	for _, uid := range kept {
		if !slices.Contains(folders, uid) {
			folders = append(folders, uid)
		}
	}
	return folders, errors.Join(err, errKept)
}

func (r *Runner) prepare(ctx context.Context, p *v1.Pod, a pod.Action) error {
	// First: volumes show the pod what it was granted.
	allowed, err := r.cfg.Allocations.Admit(p)
	if err != nil {
		return err
	}
	if err := r.cfg.Volumes.Prepare(ctx, grant.Apply(p, allowed)); err != nil {
		return err
	}
	if a.PodResources != nil {
		allowed = a.PodResources
	}
	if err := r.cfg.Cgroups.Ensure(ctx, p, grant.PodLimits(p, allowed)); err != nil {
		return &pod.Failure{Reason: "FailedCreatePodContainer", Message: err.Error()}
	}
	for name := range pod.ContainerNames(p) {
		if err := r.cfg.Logs.Create(logsOf(p), name); err != nil {
			return err
		}
	}
	return nil
}

// clean takes down what prepare made and what was kept. The pod's folder goes
// last, so that a clean-up that fails is found again after a restart.
func (r *Runner) clean(ctx context.Context, p *v1.Pod, uid types.UID) error {
	if err := errors.Join(r.cfg.Cgroups.Remove(ctx, uid), r.removeLogs(p, uid), r.cfg.Records.Remove(uid)); err != nil {
		return err
	}
	r.cfg.Allocations.Forget(uid)
	if err := r.cfg.Users.Release(uid); err != nil {
		return err
	}
	return r.cfg.Volumes.Clean(ctx, uid)
}

// removeLogs removes the pod's logs. Of a pod nobody wants only the UID is known,
// and an agent killed while it removed the pod may have left links.
func (r *Runner) removeLogs(p *v1.Pod, uid types.UID) error {
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

func logsOf(p *v1.Pod) podlogdirs.Pod {
	return podlogdirs.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// removeLog removes the log of an instance that was removed.
func (r *Runner) removeLog(o *pod.Observed, c *pod.Container) error {
	err := r.cfg.Logs.Remove(podlogdirs.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.UID},
		podlogdirs.Instance{Container: c.Name, Attempt: c.Attempt, ID: c.ID})
	if err != nil {
		return fmt.Errorf("log of container %s: %w", c.Name, err)
	}
	return nil
}
