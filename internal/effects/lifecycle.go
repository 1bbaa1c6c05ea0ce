package effects

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/grant"
	"github.com/deckhand-node/deckhand/internal/handler"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

// hook runs a postStart or preStop hook. Of a pod whose spec is gone, what its
// container was made with says what to run.
func (r *Runner) hook(ctx context.Context, p *v1.Pod, o *pod.Observed, a pod.Action) error {
	t := handler.Target{Pod: p, ID: a.ID}
	if p != nil && p.Spec.HostNetwork && len(r.cfg.HostIPs) > 0 {
		t.PodIP = r.cfg.HostIPs[0]
	}
	var hook *v1.LifecycleHandler
	if o != nil {
		for i := range o.Containers {
			c := &o.Containers[i]
			if c.ID != a.ID {
				continue
			}
			if sb := sandboxOf(o, c.SandboxID); sb != nil && len(sb.IPs) > 0 {
				t.PodIP = sb.IPs[0]
			}
			if c.Made != nil {
				hook, t.Ports = c.Made.PreStop, c.Made.Ports
			}
		}
	}
	if p != nil {
		c, err := containerSpec(p, a.Container)
		if err != nil {
			return err
		}
		t.Container, hook = c, nil
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
	return r.cfg.Hooks.Hook(ctx, t, hook, a.Grace)
}

// resizePod sets what the pod's control group allows. When that is what it was
// granted, and no more, the resize is over.
func (r *Runner) resizePod(ctx context.Context, p *v1.Pod, a pod.Action) error {
	if err := r.cfg.Cgroups.Resize(ctx, p, grant.PodLimits(p, a.PodResources)); err != nil {
		return err
	}
	if granted := r.cfg.Allocations.Get(p.UID); granted != nil && grant.Equal(granted, a.PodResources) {
		r.cfg.Allocations.Settled(p.UID)
	}
	return nil
}

// resizeContainer gives a running container other resources. A memory limit below
// what it uses would have the kernel kill it: that is refused, and tried again.
func (r *Runner) resizeContainer(ctx context.Context, p *v1.Pod, a pod.Action) error {
	c, err := containerSpec(p, a.Container)
	if err != nil {
		return err
	}
	next := translate.ResizedResources(r.cfg.Settings(), grant.Apply(p, a.PodResources), c, *a.Resources)
	if next.MemoryLimitInBytes > 0 {
		stats, err := r.cfg.Runtime.ContainerStats(ctx, a.ID)
		if err != nil {
			return fmt.Errorf("can't tell how much memory container %s uses: %w", a.Container, err)
		}
		if used := int64(stats.GetMemory().GetWorkingSetBytes().GetValue()); used >= next.MemoryLimitInBytes {
			return fmt.Errorf("container %s uses %d bytes of memory, more than its new limit of %d: the limit stays until it uses less", a.Container, used, next.MemoryLimitInBytes)
		}
	}
	if err := r.cfg.Runtime.UpdateContainerResources(ctx, a.ID, next); err != nil {
		return fmt.Errorf("container %s can't be resized: %w", a.Container, err)
	}
	return nil
}

// recordKept is the kind of record that holds a pod.Kept.
const recordKept = "kept"

// keep writes what has to outlive the agent. What decides about the pod's end has
// to outlive a loss of power as well.
func (r *Runner) keep(uid types.UID, k *pod.Kept) error {
	durable := k.Ending != nil || k.RestartAll != nil || k.Terminal != ""
	if err := r.cfg.Records.Save(uid, recordKept, k, durable); err != nil {
		return err
	}
	if k.Terminal != "" {
		r.cfg.Allocations.Release(uid)
	}
	return nil
}

// Kept reads what an earlier agent kept of the pod; nil if nothing, or nothing that
// can be used.
func (r *Runner) Kept(p *v1.Pod) *pod.Kept {
	k := &pod.Kept{}
	found, err := r.cfg.Records.Load(p.UID, recordKept, k)
	if err != nil {
		r.cfg.Log.Error(err, "What was kept of the pod can't be used: it goes on from what its containers tell", "pod", pod.FullName(p))
	}
	if !found {
		return nil
	}
	if k.Terminal != "" {
		r.cfg.Allocations.Release(p.UID)
	}
	return k
}
