package executor

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/runtime/cri"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/worker/handler"
)

// hook runs a postStart or preStop hook. If the pod's spec is gone, the container's CreatedWith has the hook.
func (r *Executor) hook(ctx context.Context, p *v1.Pod, c *v1.Container, o *pod.Observed, a pod.Action) error {
	t := handler.Target{Pod: p, Container: c, ID: a.ID}
	if ips := r.cfg.HostIPs(); p != nil && p.Spec.HostNetwork && len(ips) > 0 {
		t.PodIP = ips[0]
	}
	var hook *v1.LifecycleHandler
	if inst := o.Instance(a.ID); inst != nil {
		if sb := o.Sandbox(inst.SandboxID); sb != nil && len(sb.IPs) > 0 {
			t.PodIP = sb.IPs[0]
		}
		if inst.CreatedWith != nil {
			hook, t.Ports = inst.CreatedWith.PreStop, inst.CreatedWith.Ports
		}
	}
	if c != nil {
		hook = nil
		if l := c.Lifecycle; l != nil {
			hook = l.PreStop
			if a.Kind == pod.PostStart {
				hook = l.PostStart
			}
		}
	}
	if hook == nil {
		return fmt.Errorf("container %s has no such hook", a.Container)
	}
	return r.cfg.Hooks.Hook(ctx, t, hook)
}

// thaw thaws frozen processes that have to end, because a frozen process doesn't react to signals. If that fails, the
// runtime is nevertheless requested to stop them.
func (r *Executor) thaw(ctx context.Context, uid types.UID, container string) {
	if err := r.cfg.Cgroups.Thaw(ctx, uid, container); err != nil && ctx.Err() == nil {
		r.cfg.Log.Error(err, "Can't thaw processes that are to end", "podUID", uid, "containerID", container)
	}
}

// resizePod sets the limits of the pod's cgroup, then reports them to the runtime. If the limits equal the pod's
// allocation, the resize is complete.
func (r *Executor) resizePod(ctx context.Context, p *v1.Pod, o *pod.Observed, a pod.Action) error {
	if err := r.cfg.Cgroups.Resize(ctx, p, r.limits(p, a.PodResources)); err != nil {
		return err
	}
	// The runtime's answer is only logged and doesn't hold up the resize (CRI UpdatePodSandboxResources).
	if o != nil && len(o.Sandboxes) > 0 && o.Sandboxes[0].State == pod.SandboxReady {
		overhead, resources := translate.SandboxResources(r.cfg.Settings(), allocated.Apply(p, a.PodResources),
			r.cfg.Allocations.Unthrottled(p))
		if err := r.cfg.Runtime.UpdatePodSandboxResources(ctx, o.Sandboxes[0].ID, overhead, resources); err != nil &&
			!cri.IsUnimplemented(err) && ctx.Err() == nil {
			r.cfg.Log.Error(err, "UpdatePodSandboxResources failed; continuing the resize",
				"pod", klog.KObj(p), "podUID", p.UID)
		}
	}
	if current := r.cfg.Allocations.Get(p.UID); current != nil && allocated.Equal(current, a.PodResources) {
		r.cfg.Allocations.MarkActuated(p.UID)
	}
	return nil
}

// resizeContainer changes the resources of a running container. It refuses a memory limit below the container's usage,
// because the kernel would kill the container; the resize is then retried.
func (r *Executor) resizeContainer(ctx context.Context, p *v1.Pod, c *v1.Container, a pod.Action) error {
	has, err := r.cfg.Allocations.Assigned(ctx, p, c)
	if err != nil {
		return err
	}
	// An update without CPUs leaves those of the container alone. The assigner changes them, at any time.
	next := translate.ResizedResources(r.cfg.Settings(), allocated.Apply(p, a.PodResources), c, *a.Resources,
		translate.Assignment{NoQuota: has.Assignment.NoQuota})
	if next.MemoryLimitInBytes > 0 {
		stats, err := r.cfg.Runtime.ContainerStats(ctx, a.ID)
		if err != nil {
			return fmt.Errorf("can't find how much memory container %s uses: %w", a.Container, err)
		}
		if used := int64(stats.GetMemory().GetWorkingSetBytes().GetValue()); used >= next.MemoryLimitInBytes {
			return fmt.Errorf("attempting to set container %q memory limit (%d) below current usage (%d): the limit "+
				"stays as it was until it uses less", a.Container, next.MemoryLimitInBytes, used)
		}
	}
	if err := r.cfg.Runtime.UpdateContainerResources(ctx, a.ID, next); err != nil {
		return fmt.Errorf("container %s can't be resized: %w", a.Container, err)
	}
	return nil
}

// checkpointRecord is the kind of the record that holds a pod.Checkpoint.
const checkpointRecord = "kept"

// saveCheckpoint writes the checkpoint. A terminal phase and its causes also have to survive a loss of power.
func (r *Executor) saveCheckpoint(uid types.UID, k *pod.Checkpoint) error {
	durable := k.Termination != nil || k.RestartAll != nil || k.Terminal != ""
	if err := r.cfg.Records.Save(uid, checkpointRecord, k, durable); err != nil {
		return err
	}
	if k.Terminal != "" && k.Termination != nil && k.Termination.Rejected { // nothing was created for the pod
		r.cfg.Allocations.Release(uid)
	}
	return nil
}

// Checkpoint reads the checkpoint that an earlier agent saved; nil if there is none that is readable. The result's
// deadline and end of the pod get a monotonic reading, so that they don't move when the clock is set.
func (r *Executor) Checkpoint(uid types.UID) *pod.Checkpoint {
	k := &pod.Checkpoint{}
	found, err := r.cfg.Records.Load(uid, checkpointRecord, k)
	if err != nil {
		r.cfg.Log.Error(err, "The checkpoint of the pod can't be used: the pod goes on from the state of its containers", "podUID", uid)
	}
	if !found {
		return nil
	}
	now := time.Now()
	k.EndBy, k.DeadlineFrom = pod.Anchored(k.EndBy, now), pod.Anchored(k.DeadlineFrom, now)
	if k.Termination != nil {
		k.Termination.At = pod.Anchored(k.Termination.At, now)
	}
	return k
}

// Ended reports whether the pod has ended for good according to the checkpoint of an earlier agent.
func Ended(records Records, uid types.UID) (bool, error) {
	var k pod.Checkpoint
	found, err := records.Load(uid, checkpointRecord, &k)
	return found && k.Terminal != "", err
}
