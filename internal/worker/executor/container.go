package executor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/image/pull"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/internal/runtime/translate/env"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
)

// ensureImage makes the container's image available. Before that, it creates the volumes of an ephemeral container that
// was added to the pod after Prepare.
func (r *Executor) ensureImage(ctx context.Context, d *pod.Desired, c *v1.Container,
	a pod.Action) (ref, message string, err error) {
	p := d.Pod
	granted := allocated.Apply(p, r.cfg.Allocations.Get(p.UID))
	if err := r.cfg.Volumes.PrepareContainer(ctx, granted, c, r.cfg.Objects.For(d)); err != nil {
		return "", "", err
	}
	img, err := r.cfg.Images.Ensure(ctx,
		pull.Request{Image: a.Image, Policy: c.ImagePullPolicy, Pod: p, Objects: r.cfg.Objects.For(d), Pulling: func() {
			r.cfg.Recorder.Event(p, pod.Event{Type: v1.EventTypeNormal, Reason: pod.ReasonPulling,
				Container: a.Container, Message: fmt.Sprintf("Pulling image %q", a.Image)})
		}})
	if err != nil {
		return "", "", err
	}
	if err := r.cfg.Volumes.Images(ctx, p, c); err != nil {
		return "", "", err
	}
	return img.Ref, img.Message(a.Image), nil
}

func (r *Executor) createContainer(ctx context.Context, d *pod.Desired, o *pod.Observed, a pod.Action) (string, error) {
	sb := o.Sandbox(a.SandboxID)
	if sb == nil {
		return "", fmt.Errorf("sandbox %s ended before the container was created in it; a new sandbox is created "+
			"automatically", a.SandboxID)
	}
	sandboxConfig, err := r.sandboxConfig(d.Pod, sb)
	if err != nil {
		return "", err
	}
	p := d.Pod
	config, message, err := r.containerConfig(ctx, d, o, sb, a)
	if err != nil {
		return "", configFailure(err)
	}
	if c := pod.ContainerNamed(p, a.Container); c != nil && p.Spec.HostNetwork {
		for _, e := range r.takenPorts(p, c) {
			r.cfg.Recorder.Event(p, e)
		}
	}
	release, err := r.gate.Acquire(ctx, priorityCreate)
	if err != nil {
		return "", err
	}
	defer release()
	// The volumes are checked again as late as possible: if a path is missing, the runtime would create a directory on
	// the host.
	if err := r.recheck(ctx, p, pod.ContainerNamed(p, a.Container)); err != nil {
		return "", err
	}
	ctx, done := finishing(ctx)
	defer done()
	create := func() (string, error) {
		return r.cfg.Runtime.CreateContainer(ctx, a.SandboxID, config, sandboxConfig)
	}
	id, err := create()
	if err != nil {
		id, err = r.replaceContainer(ctx, p, a, err, create)
	}
	if err != nil {
		r.cfg.Meter.ContainerStarted(pod.ContainerType(p, a.Container), true)
		return "", err
	}
	r.cfg.Observer.ContainerCreated(p.UID, p.Name, p.Namespace, pod.Container{
		ID: id, Name: a.Container, SandboxID: a.SandboxID, Attempt: a.Attempt, State: pod.ContainerCreated,
		CreatedAt: time.Now(),
		Image:     config.GetImage().GetUserSpecifiedImage(), ImageRef: a.ImageRef, Backoff: a.Backoff,
		Grace: p.Spec.TerminationGracePeriodSeconds,
		Hash:  config.Annotations[translate.AnnotationHash], TerminationMessagePath: message,
	})
	return id, nil
}

func (r *Executor) containerConfig(ctx context.Context, d *pod.Desired, o *pod.Observed, sb *pod.Sandbox,
	a pod.Action) (*runtimeapi.ContainerConfig, string, error) {
	p, c := r.allocated(d.Pod, a)
	podIPs := sb.IPs
	hostIPs := r.cfg.HostIPs()
	if p.Spec.HostNetwork {
		podIPs = hostIPs
	}
	facts := env.Facts{PodIPs: podIPs, HostIPs: hostIPs, Allocatable: r.cfg.Allocatable()}
	vars, events, err := env.Resolve(ctx, p, c, facts,
		env.Sources{Objects: r.cfg.Objects.For(d), Files: envFiles{r.cfg.Volumes, p}})
	if err != nil {
		return nil, "", err
	}
	for _, e := range events {
		r.cfg.Recorder.Event(p, e)
	}
	recursive, err := r.recursiveReadOnly(ctx, d, c)
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
	in := translate.ContainerInput{TargetID: target, Pod: p, Container: c, Attempt: a.Attempt, ImageRef: a.ImageRef,
		Env: vars, Mounts: mounts, Groups: r.cfg.Volumes.Groups(p), Users: users, Backoff: a.Backoff}
	if err := r.addDevices(ctx, p, c, &in); err != nil {
		return nil, "", err
	}
	if translate.NeedsImageUser(p, c) {
		img, err := r.cfg.Runtime.ImageStatus(ctx, &runtimeapi.ImageSpec{Image: a.ImageRef})
		if err != nil {
			return nil, "", fmt.Errorf("can't find the user that image %s runs as: %w", c.Image, err)
		}
		in.ImageUser = translate.ImageUserOf(img)
	}
	config, err := translate.ContainerConfig(r.cfg.Settings(), in)
	return config, message, err
}

// recursiveReadOnly reports whether the container's mounts can be read-only including their submounts (KEP-3857). The
// runtime's features are checked only for a container that asks for that.
func (r *Executor) recursiveReadOnly(ctx context.Context, d *pod.Desired, c *v1.Container) (bool, error) {
	wants := func(mode v1.RecursiveReadOnlyMode) bool {
		return slices.ContainsFunc(c.VolumeMounts, func(vm v1.VolumeMount) bool {
			return vm.RecursiveReadOnly != nil && *vm.RecursiveReadOnly == mode
		})
	}
	must := wants(v1.RecursiveReadOnlyEnabled)
	if !must && !wants(v1.RecursiveReadOnlyIfPossible) {
		return false, nil
	}
	name, err := r.runtimeHandler(ctx, d)
	if err != nil {
		if !must {
			return false, nil
		}
		return false, err
	}
	features := r.cfg.Features()
	return features != nil && features.Handlers[name].RecursiveReadOnlyMounts, nil
}

// addDevices adds the container's allocated devices and its block volumes.
func (r *Executor) addDevices(ctx context.Context, p *v1.Pod, c *v1.Container, in *translate.ContainerInput) error {
	devices, err := r.cfg.Allocations.Assigned(ctx, p, c)
	if err != nil {
		return err
	}
	if err := r.cfg.Allocations.PreStart(ctx, p, c); err != nil {
		return err
	}
	in.AddDevices(devices)
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

// recheckWithin limits the recheck of volumes, during which other actions wait for the gate.
const recheckWithin = 5 * time.Second

// recheck checks the container's volumes right before the runtime uses them.
func (r *Executor) recheck(ctx context.Context, p *v1.Pod, c *v1.Container) error {
	bounded, cancel := context.WithTimeout(ctx, recheckWithin)
	defer cancel()
	err := r.cfg.Volumes.Recheck(bounded, p, c)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("container %q: checking its hostPath volumes took more than %s: the file system doesn't "+
			"answer", c.Name, recheckWithin)
	}
	return err
}

// redacted replaces the error of a start, because the error's text may contain a Secret's value.
func redacted(err error) error {
	if wait := waitFor(err.Error()); wait != "" {
		return &pod.Failure{Reason: pod.ReasonRunContainerError, Wait: wait,
			Message: "no process or thread can be created: resource temporarily unavailable"}
	}
	return translate.ErrRedacted
}

func (r *Executor) startContainer(ctx context.Context, p *v1.Pod, c *v1.Container, a pod.Action) error {
	// This check is also made before the gate is acquired, so that a hanging file system blocks no other container.
	if err := r.cfg.Volumes.Recheck(ctx, p, c); err != nil {
		return err
	}
	release, err := r.gate.Acquire(ctx, priorityStart)
	if err != nil {
		return err
	}
	defer release()
	if err := r.recheck(ctx, p, c); err != nil {
		return err
	}
	ctx, done := finishing(ctx)
	defer done()
	// The link is made before the start, so that no container runs without it if the agent is killed in between.
	if err := r.cfg.Logs.Link(logsOf(p),
		layout.Instance{Container: a.Container, Attempt: a.Attempt, ID: a.ID}); err != nil {
		// A missing link only hides the log from log shippers, so the container is started nevertheless.
		r.cfg.Log.Error(err, "Can't link the container's log", "pod", klog.KObj(p), "containerName", a.Container)
	}
	started, err := r.cfg.Allocations.Starting(ctx, p, c, a.ID)
	if err != nil {
		return err
	}
	defer started()
	err = r.cfg.Runtime.StartContainer(ctx, a.ID)
	r.cfg.Meter.ContainerStarted(pod.ContainerType(p, a.Container), err != nil)
	if err != nil && translate.Redacted(c) {
		err = redacted(err)
	}
	// The container may have ended already, and the event may be lost. If the start failed, only the runtime has the
	// details.
	_, unread := r.refresh(ctx, a)
	return errors.Join(err, unread)
}

// refresh reads one container's state from the runtime into the observed state, and returns it.
func (r *Executor) refresh(ctx context.Context, a pod.Action) (pod.ContainerState, error) {
	st, err := r.cfg.Runtime.ContainerStatus(ctx, a.ID)
	if err != nil {
		return "", fmt.Errorf("status of container %s: %w", a.Container, err)
	}
	id, c, ok := translate.ContainerStatus(st, "", r.cfg.Settings().Boot)
	if ok {
		r.cfg.Observer.ContainerCreated(id.UID, id.Name, id.Namespace, c)
	}
	return c.State, nil
}

func (r *Executor) stopContainer(ctx context.Context, a pod.Action) error {
	if err := r.cfg.Runtime.StopContainer(ctx, a.ID, a.Grace); err != nil {
		return err
	}
	state, err := r.refresh(ctx, a)
	if err == nil && state == pod.ContainerRunning {
		// The container doesn't run any more: on a full disk containerd can't save the end of a container, and retries
		// to save it. Because of the error, the next stop request waits for its back-off.
		r.cfg.Reserve.ReleasePart()
		err = fmt.Errorf("container %s is stopped, but the runtime still reports it as running: on a full disk it "+
			"can't record the end", a.Container)
	}
	return err
}

func (r *Executor) removeContainer(ctx context.Context, o *pod.Observed, a pod.Action) error {
	c := o.Instance(a.ID)
	if c != nil && c.State == pod.ContainerCreated {
		// A request of an earlier agent may have started the container meanwhile. Then a removal would kill it without
		// its grace period, or lose its exit code and its log.
		if state, err := r.refresh(ctx, a); err == nil && state != pod.ContainerCreated {
			return nil // the next decision handles the new state
		}
	}
	remove := func() error {
		return r.removeWith(ctx, []string{a.ID}, func() error { return r.cfg.Runtime.RemoveContainer(ctx, a.ID) })
	}
	var err error
	if dead(c, a) {
		priority := priorityDeadInstance
		if len(o.Sandboxes) == 0 {
			priority = priorityGonePod
		}
		err = r.removals.do(ctx, priority, remove)
	} else {
		err = remove()
	}
	if err != nil {
		return err
	}
	r.cfg.Observer.ContainerRemoved(a.ID)
	r.cfg.Meter.RemovedContainer()
	switch {
	case c == nil:
		return nil
	case a.KeepLog:
		return r.cfg.Logs.Retire(layout.Pod{Namespace: o.Namespace, Name: o.Name, UID: o.UID},
			layout.Instance{Container: c.Name, Attempt: c.Attempt, ID: c.ID})
	}
	return r.removeLog(o, c)
}

// removeWith calls remove. If remove fails because of leftovers of which the runtime has no record, removeWith clears
// the leftovers of the containers and calls remove again.
func (r *Executor) removeWith(ctx context.Context, containers []string, remove func() error) error {
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

// targetOf returns the ID of the running instance that an ephemeral container targets; empty for a container without
// a target.
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

// allocated returns the pod with its allocated resources, and the container of the action a in that pod. If the
// action has resources, the container has these instead.
func (r *Executor) allocated(p *v1.Pod, a pod.Action) (*v1.Pod, *v1.Container) {
	q := *allocated.Apply(p, r.cfg.Allocations.Get(p.UID))
	if a.Resources != nil {
		q.Spec.Containers, q.Spec.InitContainers = slices.Clone(q.Spec.Containers), slices.Clone(q.Spec.InitContainers)
	}
	c := pod.ContainerNamed(&q, a.Container)
	if a.Resources != nil {
		c.Resources = *a.Resources
	}
	return &q, c
}
