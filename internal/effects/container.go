package effects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/grant"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/podlogdirs"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

func (r *Runner) ensureImage(ctx context.Context, p *v1.Pod, a pod.Action) (ref, message string, err error) {
	c, err := containerSpec(p, a.Container)
	if err != nil {
		return "", "", err
	}
	img, err := r.cfg.Images.Ensure(ctx, image.Request{Image: a.Image, Policy: c.ImagePullPolicy, Pod: p, Pulling: func() {
		r.cfg.Recorder.Event(p, pod.Event{Type: v1.EventTypeNormal, Reason: "Pulling", Container: a.Container, Message: fmt.Sprintf("Pulling image %q", a.Image)})
	}})
	if err != nil {
		return "", "", err
	}
	return img.Ref, img.Message(a.Image), nil
}

func (r *Runner) createContainer(ctx context.Context, p *v1.Pod, o *pod.Observed, a pod.Action) (string, error) {
	sb := sandboxOf(o, a.SandboxID)
	if sb == nil {
		return "", fmt.Errorf("sandbox %s is gone", a.SandboxID)
	}
	sandboxConfig, err := r.sandboxConfig(p, int(sb.Attempt))
	if err != nil {
		return "", err
	}
	p = grant.Apply(p, r.cfg.Allocations.Get(p.UID))
	if a.Resources != nil {
		p = withResources(p, a.Container, *a.Resources)
	}
	config, message, err := r.containerConfig(ctx, p, o, sb, a)
	if err != nil {
		return "", configFailure(err)
	}
	release, err := r.gate.Acquire(ctx, priorityCreate)
	if err != nil {
		return "", err
	}
	defer release()
	ctx, done := finishing(ctx)
	defer done()
	id, err := r.cfg.Runtime.CreateContainer(ctx, a.SandboxID, config, sandboxConfig)
	if err != nil {
		r.cfg.Meter.ContainerStarted(true)
		return "", err
	}
	r.cfg.Facts.ContainerCreated(p.UID, p.Name, p.Namespace, pod.Container{
		ID: id, Name: a.Container, SandboxID: a.SandboxID, Attempt: a.Attempt, State: pod.ContainerCreated, CreatedAt: time.Now(),
		Image: config.GetImage().GetUserSpecifiedImage(), ImageRef: a.ImageRef, Backoff: a.Backoff, Grace: p.Spec.TerminationGracePeriodSeconds,
		Hash: config.Annotations[translate.AnnotationHash], TerminationMessagePath: message,
	})
	return id, nil
}

func (r *Runner) containerConfig(ctx context.Context, p *v1.Pod, o *pod.Observed, sb *pod.Sandbox, a pod.Action) (*runtimeapi.ContainerConfig, string, error) {
	c, err := containerSpec(p, a.Container)
	if err != nil {
		return nil, "", err
	}
	podIPs := sb.IPs
	if p.Spec.HostNetwork {
		podIPs = r.cfg.HostIPs
	}
	facts := env.Facts{PodIPs: podIPs, HostIPs: r.cfg.HostIPs, Allocatable: r.cfg.Allocatable()}
	vars, news, err := env.Resolve(ctx, p, c, facts, env.Sources{Objects: r.cfg.Objects, Files: envFiles{r.cfg.Volumes, p}})
	if err != nil {
		return nil, "", err
	}
	for _, e := range news {
		r.cfg.Recorder.Event(p, e)
	}
	recursive, err := r.recursiveReadOnly(ctx, p, c)
	if err != nil {
		return nil, "", err
	}
	mounts, message, err := r.cfg.Volumes.Mounts(ctx, manager.MountRequest{
		Pod: p, Container: c.Name, PodIPs: podIPs, Attempt: a.Attempt, Env: vars, RecursiveReadOnly: recursive,
	})
	if err != nil {
		return nil, "", err
	}
	target, err := targetOf(p, o, a.Container)
	if err != nil {
		return nil, "", err
	}
	users, err := usersOf(p, r.cfg.Users.Get)
	if err != nil {
		return nil, "", err
	}
	in := translate.ContainerInput{TargetID: target, Pod: p, Container: c, Attempt: a.Attempt, ImageRef: a.ImageRef, Env: vars, Mounts: mounts, Groups: r.cfg.Volumes.Groups(p), Users: users, Backoff: a.Backoff}
	if err := r.addDevices(ctx, p, c, &in); err != nil {
		return nil, "", err
	}
	if translate.NeedsImageUser(p, c) {
		img, err := r.cfg.Runtime.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: a.ImageRef})
		if err != nil {
			return nil, "", fmt.Errorf("can't tell who image %s runs as: %w", c.Image, err)
		}
		in.ImageUser = translate.ImageUserOf(img)
	}
	config, err := translate.ContainerConfig(r.cfg.Settings(), in)
	return config, message, err
}

// recursiveReadOnly reports whether the container's mounts can be read-only with all that is mounted in
// them (KEP-3857). That is asked for a container that wants it only.
func (r *Runner) recursiveReadOnly(ctx context.Context, p *v1.Pod, c *v1.Container) (bool, error) {
	wants := func(mode v1.RecursiveReadOnlyMode) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(vm v1.VolumeMount) bool { return vm.RecursiveReadOnly != nil && *vm.RecursiveReadOnly == mode })
	}
	must := wants(v1.RecursiveReadOnlyEnabled)
	if !must && !wants(v1.RecursiveReadOnlyIfPossible) {
		return false, nil
	}
	name, err := r.runtimeHandler(ctx, p)
	if err != nil {
		if !must {
			return false, nil
		}
		return false, err
	}
	features := r.cfg.Features()
	return features != nil && features.Handlers[name].RecursiveReadOnlyMounts, nil
}

// addDevices gives the instance the devices that it was promised, and its volumes that are devices.
func (r *Runner) addDevices(ctx context.Context, p *v1.Pod, c *v1.Container, in *translate.ContainerInput) error {
	granted, err := r.cfg.Devices.For(ctx, p, c)
	if err != nil {
		return err
	}
	in.AddDevices(granted)
	volumes, err := r.cfg.Volumes.BlockVolumes(p, c)
	if err != nil {
		return err
	}
	blocks, err := translate.BlockDevices(c, volumes)
	if err != nil {
		return err
	}
	in.Devices = append(in.Devices, blocks...)
	return nil
}

func (r *Runner) startContainer(ctx context.Context, p *v1.Pod, a pod.Action) error {
	release, err := r.gate.Acquire(ctx, priorityStart)
	if err != nil {
		return err
	}
	defer release()
	ctx, done := finishing(ctx)
	defer done()
	// Before the start, so that no container runs without it if the agent is killed in between.
	if err := r.cfg.Logs.Link(logsOf(p), podlogdirs.Instance{Container: a.Container, Attempt: a.Attempt, ID: a.ID}); err != nil {
		// A missing link costs a log shipper's view, not the container.
		r.cfg.Log.Error(err, "Can't link the container's log", "pod", pod.FullName(p), "container", a.Container)
	}
	err = r.cfg.Runtime.StartContainer(ctx, a.ID)
	r.cfg.Meter.ContainerStarted(err != nil)
	if err != nil {
		if c := pod.ContainerNamed(p, a.Container); c != nil && translate.Hushed(c) {
			err = translate.ErrHushed
		}
		// How it ended (StartError, exit code) is known to the runtime alone.
		return errors.Join(err, r.refresh(ctx, a))
	}
	// It may have ended already, and the event may be lost.
	return r.refresh(ctx, a)
}

// refresh reads one container's state from the runtime into the facts.
func (r *Runner) refresh(ctx context.Context, a pod.Action) error {
	st, err := r.cfg.Runtime.ContainerStatus(ctx, a.ID)
	if err != nil {
		return fmt.Errorf("status of container %s: %w", a.Container, err)
	}
	if id, c, ok := translate.ContainerStatus(st, ""); ok {
		r.cfg.Facts.ContainerCreated(id.UID, id.Name, id.Namespace, c)
	}
	return nil
}

func (r *Runner) stopContainer(ctx context.Context, a pod.Action) error {
	if err := r.cfg.Runtime.StopContainer(ctx, a.ID, a.Grace); err != nil {
		return err
	}
	return r.refresh(ctx, a)
}

func (r *Runner) removeContainer(ctx context.Context, o *pod.Observed, a pod.Action) error {
	remove := func() error { return r.cfg.Runtime.RemoveContainer(ctx, a.ID) }
	if err := r.removing(ctx, []string{a.ID}, remove); err != nil {
		return err
	}
	r.cfg.Facts.ContainerRemoved(a.ID)
	r.cfg.Meter.RemovedContainer()
	if o == nil {
		return nil
	}
	for i := range o.Containers {
		c := &o.Containers[i]
		if c.ID != a.ID {
			continue
		}
		if a.KeepLog {
			return r.cfg.Logs.Retire(podlogdirs.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.UID},
				podlogdirs.Instance{Container: c.Name, Attempt: c.Attempt, ID: c.ID})
		}
		return r.removeLog(o, c)
	}
	return nil
}

// removing calls remove, and again once it is cleared away what the runtime has lost
// sight of in the containers.
func (r *Runner) removing(ctx context.Context, containers []string, remove func() error) error {
	err := remove()
	if err == nil || !r.cfg.Tasks.Left(err) {
		return err
	}
	for _, id := range containers {
		if failed := r.cfg.Tasks.Clear(ctx, id); failed != nil {
			return errors.Join(err, failed)
		}
	}
	return remove()
}

// targetOf is the running instance whose processes an ephemeral container wants
// to see; empty for a container that names none.
func targetOf(p *v1.Pod, o *pod.Observed, name string) (string, error) {
	for i := range p.Spec.EphemeralContainers {
		e := &p.Spec.EphemeralContainers[i]
		if e.Name != name || e.TargetContainerName == "" {
			continue
		}
		inst := o.Newest(e.TargetContainerName)
		if inst == nil || inst.State != pod.ContainerRunning {
			return "", fmt.Errorf("its target container %s doesn't run", e.TargetContainerName)
		}
		return inst.ID, nil
	}
	return "", nil
}

// withResources is the pod with other resources for one container.
func withResources(p *v1.Pod, name string, res v1.ResourceRequirements) *v1.Pod {
	q := *p
	q.Spec.Containers, q.Spec.InitContainers = slices.Clone(p.Spec.Containers), slices.Clone(p.Spec.InitContainers)
	if c := pod.ContainerNamed(&q, name); c != nil {
		c.Resources = res
	}
	return &q
}

func containerSpec(p *v1.Pod, name string) (*v1.Container, error) {
	if c := pod.ContainerNamed(p, name); c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("pod %s/%s has no container %s", p.Namespace, p.Name, name)
}

func sandboxOf(o *pod.Observed, id string) *pod.Sandbox {
	if o == nil {
		return nil
	}
	for i := range o.Sandboxes {
		if o.Sandboxes[i].ID == id {
			return &o.Sandboxes[i]
		}
	}
	return nil
}
