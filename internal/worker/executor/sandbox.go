package executor

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/runtime/userns"
)

// knownSandbox is the newest sandbox of a pod, with the configuration with which it was created. The configuration is
// stored in encoded form, because there is one for every running pod and it is rarely needed.
type knownSandbox struct {
	id     string
	config []byte
}

// sandboxConfig returns the configuration of the pod's sandbox, which the runtime needs again for each container in it.
// According to the CRI, the configuration doesn't change while the sandbox exists, even if the pod or the node's
// resolv.conf is edited. After a restart of the agent it is rebuilt once.
func (r *Executor) sandboxConfig(p *v1.Pod, sb *pod.Sandbox) (*runtimeapi.PodSandboxConfig, error) {
	r.mu.Lock()
	known := r.sandboxes[p.UID]
	r.mu.Unlock()
	if known.id == sb.ID {
		config := &runtimeapi.PodSandboxConfig{}
		if err := proto.Unmarshal(known.config, config); err != nil {
			return nil, fmt.Errorf("read the configuration of sandbox %s: %w", sb.ID, err)
		}
		return config, nil
	}
	dns, _, err := r.cfg.DNS.For(p)
	if err != nil {
		// The containers' resolv.conf was created with the sandbox, so that an unreadable resolv.conf on the node must
		// not keep a container from starting.
		r.cfg.Log.V(2).Info("Can't give the runtime the pod's DNS configuration again", "pod", klog.KObj(p), "err", err)
	}
	config, err := r.makeSandboxConfig(p, r.cfg.Users.Get, translate.SandboxInput{Attempt: sb.Attempt, DNS: dns})
	if err != nil {
		return nil, err
	}
	return config, r.remember(p.UID, sb.ID, config)
}

// remember stores the configuration of a pod's sandbox until the pod is cleaned up or has another sandbox.
func (r *Executor) remember(uid types.UID, id string, config *runtimeapi.PodSandboxConfig) error {
	text, err := proto.Marshal(config)
	if err != nil {
		return fmt.Errorf("encode the configuration of sandbox %s: %w", id, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sandboxes[uid] = knownSandbox{id, text}
	return nil
}

// forgetSandbox drops the stored sandbox of a pod.
func (r *Executor) forgetSandbox(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sandboxes, uid)
}

// makeSandboxConfig completes the argument in with data of the pod and with the user IDs that users returns, and
// translates it.
func (r *Executor) makeSandboxConfig(p *v1.Pod, users func(types.UID) (userns.Range, error),
	in translate.SandboxInput) (*runtimeapi.PodSandboxConfig, error) {
	var err error
	if in.Users, err = usersOf(p, users); err != nil {
		return nil, err
	}
	in.Pod, in.CgroupParent, in.Unthrottled = p, r.cfg.Cgroups.CgroupParent(p), r.cfg.Allocations.Unthrottled(p)
	return translate.SandboxConfig(r.cfg.Settings(), in)
}

// usersOf returns the pod's range of the host's user IDs; nil if it uses the host's users.
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

func (r *Executor) createSandbox(ctx context.Context, d *pod.Desired, a pod.Action) (string, error) {
	p := d.Pod
	dns, events, err := r.cfg.DNS.For(p)
	if err != nil {
		return "", err
	}
	handler, err := r.runtimeHandler(ctx, d)
	if err != nil {
		return "", err
	}
	if err := r.cfg.Features().CheckUsers(handler, p); err != nil {
		return "", err
	}
	config, err := r.makeSandboxConfig(p, r.cfg.Users.Ensure,
		translate.SandboxInput{Attempt: uint32(a.Attempt), DNS: dns})
	if err != nil {
		return "", err
	}
	if !p.Spec.HostNetwork { // in the host network, each start of a container checks its ports
		events = append(events, r.takenPorts(p, pod.LongRunning(p)...)...) // before the runtime uses them
	}
	release, err := r.gate.Acquire(ctx, prioritySandbox)
	if err != nil {
		return "", err
	}
	defer release()
	ctx, done := finishing(ctx)
	defer done()
	began := time.Now()
	run := func() (string, error) { return r.cfg.Runtime.RunPodSandbox(ctx, config, handler) }
	id, err := run()
	if err != nil {
		id, err = r.adoptSandbox(ctx, p, a, handler, err, run)
	}
	r.cfg.Meter.SandboxStarted(handler, time.Since(began), p.Spec.HostUsers != nil && !*p.Spec.HostUsers, err != nil)
	if err != nil {
		return "", err
	}
	if err := r.remember(p.UID, id, config); err != nil {
		return "", err
	}
	// The events are recorded only now, so that each is recorded once, however often the runtime failed.
	for _, e := range events {
		r.cfg.Recorder.Event(p, e)
	}
	// The response of RunPodSandbox has no address, but containers need it.
	st, err := r.cfg.Runtime.PodSandboxStatus(ctx, id)
	if err != nil {
		return "", fmt.Errorf("sandbox %s was created, but its status can't be read: %w", id, err)
	}
	if identity, sb, ok := translate.SandboxStatus(st); ok {
		r.cfg.Observer.SandboxCreated(identity.UID, identity.Name, identity.Namespace, sb)
	}
	return id, nil
}

func (r *Executor) stopSandbox(ctx context.Context, d *pod.Desired, o *pod.Observed, a pod.Action) error {
	// After a reboot all pods have dead sandboxes, which have to be stopped before the next sandboxes start. Stopping
	// all of them at once would delay the first starts. A sandbox in the host network doesn't wait: its pod may be the
	// network plugin, without which the stops of other sandboxes hang.
	if sb := o.Sandbox(a.ID); sb != nil && sb.State == pod.SandboxNotReady && !sb.HostNetwork {
		stops := r.stops
		if d == nil {
			stops = r.leftoverStops
		}
		release, err := stops.Acquire(ctx, 0)
		if err != nil {
			return err
		}
		defer release()
	}
	if err := r.cfg.Runtime.StopPodSandbox(ctx, a.ID); err != nil {
		return err
	}
	r.cfg.Observer.SandboxStopped(a.ID)
	return nil
}

func (r *Executor) removeSandbox(ctx context.Context, d *pod.Desired, o *pod.Observed, a pod.Action) error {
	var ended []string
	if o != nil {
		for i := range o.Containers {
			if c := &o.Containers[i]; c.SandboxID == a.ID && c.Ended() {
				ended = append(ended, c.ID)
			}
		}
	}
	remove := func() error {
		return r.removeWith(ctx, ended, func() error { return r.cfg.Runtime.RemovePodSandbox(ctx, a.ID) })
	}
	var err error
	if d == nil { // leftovers: there may be thousands
		err = r.removals.do(ctx, priorityGonePod, remove)
	} else {
		err = remove()
	}
	if err != nil {
		return err
	}
	r.cfg.Observer.SandboxRemoved(a.ID)
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
