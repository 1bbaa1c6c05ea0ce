package effects

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/userns"
)

// sandboxConfig is the configuration of the pod's sandbox that is there, which each container in it is made with.
func (r *Runner) sandboxConfig(p *v1.Pod, attempt int) (*runtimeapi.PodSandboxConfig, error) {
	dns, _, err := r.cfg.DNS.For(p)
	if err != nil {
		// The containers' resolv.conf was made with the sandbox: a node's that can't be
		// read now is no reason to keep one from starting.
		r.cfg.Log.V(2).Info("Can't tell the runtime the pod's DNS configuration again", "pod", pod.FullName(p), "err", err)
	}
	users, err := usersOf(p, r.cfg.Users.Get)
	if err != nil {
		return nil, err
	}
	return translate.SandboxConfig(r.cfg.Settings(), translate.SandboxInput{
		Pod: p, Attempt: uint32(attempt), DNS: dns, CgroupParent: r.cfg.Cgroups.CgroupParent(p), Users: users, Made: true,
	})
}

// usersOf is what the pod gets of the host's user IDs; nil for the host's own users.
func usersOf(p *v1.Pod, get func(types.UID) (userns.Range, error)) (*userns.Range, error) {
	if p.Spec.HostUsers == nil || *p.Spec.HostUsers {
		return nil, nil
	}
	users, err := get(p.UID)
	if err != nil {
		return nil, err
	}
	return &users, nil
}

func (r *Runner) createSandbox(ctx context.Context, p *v1.Pod, a pod.Action) (string, error) {
	dns, news, err := r.cfg.DNS.For(p)
	if err != nil {
		return "", err
	}
	handler, err := r.runtimeHandler(ctx, p)
	if err != nil {
		return "", err
	}
	if err := translate.Admit(r.cfg.Settings(), r.cfg.Features(), handler, p); err != nil {
		return "", err
	}
	users, err := usersOf(p, r.cfg.Users.Ensure)
	if err != nil {
		return "", err
	}
	config, err := translate.SandboxConfig(r.cfg.Settings(), translate.SandboxInput{
		Pod: p, Attempt: uint32(a.Attempt), DNS: dns, CgroupParent: r.cfg.Cgroups.CgroupParent(p), Users: users,
	})
	if err != nil {
		return "", err
	}
	release, err := r.gate.Acquire(ctx, prioritySandbox)
	if err != nil {
		return "", err
	}
	defer release()
	ctx, done := finishing(ctx)
	defer done()
	id, err := r.cfg.Runtime.RunPodSandbox(ctx, config, handler)
	r.cfg.Meter.SandboxStarted(err != nil)
	if err != nil {
		return "", err
	}
	// Now, so that it is told once however often the runtime failed.
	for _, e := range news {
		r.cfg.Recorder.Event(p, e)
	}
	// The answer to RunPodSandbox has no address in it, and containers need it.
	st, err := r.cfg.Runtime.PodSandboxStatus(ctx, id)
	if err != nil {
		return "", fmt.Errorf("sandbox %s was made, but its status can't be had: %w", id, err)
	}
	if identity, sb, ok := translate.SandboxStatus(st); ok {
		r.cfg.Facts.SandboxCreated(identity.UID, identity.Name, identity.Namespace, sb)
	}
	return id, nil
}

func (r *Runner) stopSandbox(ctx context.Context, a pod.Action) error {
	if err := r.cfg.Runtime.StopPodSandbox(ctx, a.ID); err != nil {
		return err
	}
	r.cfg.Facts.SandboxStopped(a.ID)
	return nil
}

func (r *Runner) removeSandbox(ctx context.Context, o *pod.Observed, a pod.Action) error {
	var ended []string
	if o != nil {
		for i := range o.Containers {
			if c := &o.Containers[i]; c.SandboxID == a.ID && c.Ended() {
				ended = append(ended, c.ID)
			}
		}
	}
	if err := r.removing(ctx, ended, func() error { return r.cfg.Runtime.RemovePodSandbox(ctx, a.ID) }); err != nil {
		return err
	}
	r.cfg.Facts.SandboxRemoved(a.ID)
	if o == nil {
		return nil
	}
	for i := range o.Containers {
		if c := &o.Containers[i]; c.SandboxID == a.ID {
			if err := r.removeLog(o, c); err != nil {
				return err
			}
		}
	}
	return nil
}
