package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
)

// Prepare makes the pod's directory and mounts the volumes that its containers use, except those that only ephemeral
// containers use: see PrepareContainer. It may be called again, also for a running pod: it leaves mounted volumes
// alone, and waits for mounts that are still in progress. If a volume isn't supported, it makes no directory and mounts
// nothing for the pod. After a restart of the agent it also takes over volumes of ephemeral containers; a failure of
// these is only an event.
//
// It waits for all volumes but images, which only the containers that mount them need (see Images). It stops waiting
// when a mount has taken Config.Early or, if the mount has already taken longer than that, Config.Patience. The
// mount continues afterwards.
//
// objects gives access to the API objects that the pod may use. Later updates of the volumes use it as well. The
// error is a *pod.Failure that names the volumes, or the context's error.
func (m *Manager) Prepare(ctx context.Context, p *v1.Pod, objects object.View) error {
	err := m.prepare(ctx, p, objects)
	if ctx.Err() == nil {
		m.adopt(ctx, p, objects)
	}
	return err
}

// prepare does what Prepare does, but not for ephemeral containers.
func (m *Manager) prepare(ctx context.Context, p *v1.Pod, objects object.View) error {
	wants, problems, err := m.plan(ctx, p, permanent(p), objects)
	if err != nil {
		return err
	}
	if len(problems) == 0 {
		if err := m.sweep(ctx, p); err != nil {
			return err
		}
	}
	return m.mountAll(ctx, p, wants, problems)
}

// PrepareContainer does what Prepare does, but only for the volumes that one container of a prepared pod uses. It does
// nothing if they are mounted already. An ephemeral container may use volumes that no other container does: a failure
// of these affects no other container.
func (m *Manager) PrepareContainer(ctx context.Context, p *v1.Pod, c *v1.Container, objects object.View) error {
	if m.ready(p, c) {
		return ctx.Err()
	}
	wants, problems, err := m.plan(ctx, p, []*v1.Container{c}, objects)
	if err != nil {
		return err
	}
	return m.mountAll(ctx, p, wants, problems)
}

// ready reports whether the volumes that a container uses are mounted. For images it is enough that their pull was
// started: see Images.
func (m *Manager) ready(p *v1.Pod, c *v1.Container) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return !slices.ContainsFunc(p.Spec.Volumes, func(v v1.Volume) bool {
		if v.Image != nil {
			return pod.UsesVolume(c, v.Name) && m.desired[p.UID].Named(v.Name) == nil
		}
		return pod.UsesVolume(c, v.Name) && !m.actual.Mounts(p.UID, &v)
	})
}

// plan makes the pod's directory, reserves the claims of the volumes that these containers use, and adds the volumes to
// the desired set. It returns those that can be mounted, and the problems of the others.
func (m *Manager) plan(ctx context.Context, p *v1.Pod, containers []*v1.Container,
	objects object.View) (wants []*volumestate.Wanted, problems []volumestate.Problem, err error) {
	if err := safeopen.Check("pod UID", string(p.UID)); err != nil {
		return nil, nil, &pod.Failure{Reason: pod.ReasonFailedMount, Message: err.Error(), Permanent: true}
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	wants, problems = volumestate.Plan(ctx, m.conf.Plugins, m.conf.Claims, p, containers, objects)
	m.mu.Lock()
	var earlier []*volumestate.Wanted
	if wish := m.desired[p.UID]; wish != nil {
		earlier = wish.Volumes
	}
	m.mu.Unlock()
	wants, clashes := volumestate.Apart(wants, earlier)
	problems = m.unmounted(p, append(problems, clashes...))
	if ctx.Err() != nil {
		return nil, nil, ctx.Err()
	}
	if hopeless := slices.DeleteFunc(slices.Clone(problems), func(p volumestate.Problem) bool {
		return !p.Permanent()
	}); len(hopeless) > 0 {
		return nil, nil, volumestate.Failure(hopeless)
	}
	if err := m.awaitRemoval(ctx, p.UID); err != nil {
		return nil, nil, err
	}
	wants, refused, err := m.withoutDeleted(p, wants)
	if err != nil {
		return nil, nil, &pod.Failure{Reason: pod.ReasonFailedMount, Message: err.Error()}
	}
	problems = append(problems, refused...)
	if err := ctx.Err(); err != nil { // the pod may have been removed meanwhile
		return nil, nil, err
	}
	if err := os.MkdirAll(m.layout.Pod(p.UID), 0o750); err != nil {
		return nil, nil, &pod.Failure{Reason: pod.ReasonFailedMount,
			Message: fmt.Sprintf("make the pod's directory: %v", err), Disk: atomicfile.DiskFails(err)}
	}
	wants, taken := m.holders.Reserve(p, wants)
	problems = append(problems, taken...)
	m.mu.Lock()
	m.desired.Want(p, wants)
	m.mu.Unlock()
	return wants, problems, nil
}

// unmounted returns the problems of volumes that aren't mounted. Containers can use mounted volumes, even if their
// claims have changed.
func (m *Manager) unmounted(p *v1.Pod, problems []volumestate.Problem) []volumestate.Problem {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.DeleteFunc(problems, func(x volumestate.Problem) bool {
		return m.actual.Mounts(p.UID, x.Spec.Volume)
	})
}

// withoutDeleted refuses the volumes whose claims are being deleted: a pod can't begin to use such a claim. A pod
// that already uses the claim continues to use it, also after a restart of the agent or the node: the claim exists
// until the pod has ended
// (https://kubernetes.io/docs/concepts/storage/persistent-volumes/#storage-object-in-use-protection).
func (m *Manager) withoutDeleted(p *v1.Pod,
	wants []*volumestate.Wanted) (usable []*volumestate.Wanted, refused []volumestate.Problem, err error) {
	deleted := func(w *volumestate.Wanted) bool { return w.Spec.Claim != nil && w.Spec.Claim.DeletionTimestamp != nil }
	if p.Status.Phase == v1.PodRunning || !slices.ContainsFunc(wants, deleted) {
		return wants, nil, nil
	}
	there, err := m.layout.List(p.UID)
	if err != nil {
		return nil, nil, err
	}
	for _, w := range wants {
		if !deleted(w) || slices.Contains(there, w.Place) {
			usable = append(usable, w)
			continue
		}
		o := pod.Object{Kind: string(object.PersistentVolumeClaim), Namespace: p.Namespace, Name: w.Spec.Claim.Name}
		refused = append(refused,
			volumestate.Problem{Spec: w.Spec, Err: volume.Awaits(o, "%s: it is being deleted", o)})
	}
	return usable, refused, nil
}

// awaitRemoval waits until the removal of an earlier pod with this UID has ended: the removal would remove new
// volumes, too. It doesn't wait for the teardown of single volumes; a mount at the same place waits for the teardown
// itself.
func (m *Manager) awaitRemoval(ctx context.Context, uid types.UID) error {
	start := time.Now()
	var jobs []job
	for _, op := range m.ops.Of(string(uid)) {
		if strings.HasPrefix(op.Kind(), volumestate.Remove) {
			jobs = append(jobs, job{op, m.limit(op, start)})
		}
	}
	if err := m.await(ctx, jobs, start, false); err != nil {
		return err
	}
	for _, j := range jobs {
		if !j.op.Ended() {
			return &pod.Failure{Reason: pod.ReasonFailedMount, NotBefore: time.Now(),
				Message: fmt.Sprintf("clean up an earlier pod with this UID: %s: %v", subject(j.op),
					m.hanging(j.op))}
		}
	}
	return nil
}

// sweep tears down the volumes that an earlier agent left in the pod's directory and that no container of the pod uses
// any more. It does so once for each pod. If containers of the pod may exist, these volumes stay until the pod is
// released.
func (m *Manager) sweep(ctx context.Context, p *v1.Pod) error {
	m.mu.Lock()
	wish := m.desired[p.UID]
	swept := wish == nil || wish.Swept
	m.mu.Unlock()
	if swept || m.conf.Running(p.UID) {
		return nil
	}
	there, err := m.layout.List(p.UID)
	there = slices.DeleteFunc(there, func(pl volumestate.Place) bool { return m.used(p, wish, pl) })
	if err == nil && len(there) > 0 {
		err = m.awaitBriefly(ctx, m.tearDownAll(ctx, p.UID, there))
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		return &pod.Failure{Reason: pod.ReasonFailedMount,
			Message: fmt.Sprintf("remove volumes that the pod doesn't have any more: %v", err)}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if wish = m.desired[p.UID]; wish != nil {
		wish.Swept = true
	}
	return nil
}

// used reports whether a container of the pod may use the volume at this place. An ephemeral container that has ended
// counts, too: another container may read the files that it has left in an emptyDir. For a volume that isn't planned
// yet, only the name is compared.
func (m *Manager) used(p *v1.Pod, wish *volumestate.Wish, at volumestate.Place) bool {
	if slices.ContainsFunc(wish.Volumes, func(w *volumestate.Wanted) bool { return w.Place == at }) {
		return true
	}
	return wish.Named(at.Name) == nil && volumestate.UsedByAny(p, &v1.Volume{Name: at.Name})
}

// mountAll mounts the pod's volumes that aren't mounted yet, and waits for them. problems are those of other volumes:
// if there are any, the wait is shorter. The error is a *pod.Failure that describes all problems, or the context's.
func (m *Manager) mountAll(ctx context.Context, p *v1.Pod, wants []*volumestate.Wanted,
	problems []volumestate.Problem) error {
	var jobs []job
	var begun []*volumestate.Wanted
	m.useAttached(ctx, wants)
	start := time.Now()
	for _, w := range wants {
		if m.has(w) {
			continue
		}
		if problem, waits := m.waits(ctx, w); waits {
			if w.Spec.Volume.Image == nil {
				problems = append(problems, problem)
			}
			continue
		}
		op := m.beginMount(ctx, w)
		if w.Spec.Volume.Image != nil {
			continue
		}
		jobs, begun = append(jobs, job{op, m.limit(op, start)}), append(begun, w)
	}
	if err := m.await(ctx, jobs, start, len(problems) > 0); err != nil {
		return err
	}
	for i, j := range jobs {
		w, ended := begun[i], j.op.Ended() // read before Err: the operation may end in between
		switch err := j.op.Err(); {
		case !ended:
			problems = append(problems, volumestate.Problem{Spec: w.Spec, Err: m.hanging(j.op), GoesOn: true})
		case err != nil:
			until, _ := m.ops.Failed(w.Key(), j.op.Kind())
			problems = append(problems, volumestate.Problem{Spec: w.Spec, Err: m.limited(w, err), Until: until})
		// The operation mounted the volume for an earlier version of the pod, or the volume is being torn down
		// again.
		case !m.has(w):
			problems = append(problems,
				volumestate.Problem{Spec: w.Spec,
					Err:    errors.New("mounted as it was wanted before, not as it is now: it is mounted again"),
					GoesOn: true})
		}
	}
	if len(problems) > 0 {
		return volumestate.Failure(problems)
	}
	m.log.V(4).Info("Volumes are ready", "pod", klog.KRef(p.Namespace, p.Name), "volumes", len(wants))
	return nil
}

// Images waits until the images that a container mounts (KEP-4639) are present. Prepare has started to pull them.
// The error is a *pod.Failure with the result of a pull, or the context's error.
func (m *Manager) Images(ctx context.Context, p *v1.Pod, c *v1.Container) error {
	var wants []*volumestate.Wanted
	m.mu.Lock()
	if wish := m.desired[p.UID]; wish != nil {
		wants = slices.Clone(wish.Volumes)
	}
	m.mu.Unlock()
	for _, w := range wants {
		if w.Spec.Volume.Image == nil || !pod.Mounts(c, w.Name()) || m.has(w) {
			continue
		}
		err := m.beginMount(ctx, w).Wait(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil {
			continue
		}
		failed := volumestate.Failure([]volumestate.Problem{{Spec: w.Spec, Err: err}})
		if f, ok := errors.AsType[*pod.Failure](err); ok {
			*failed = *f // without the volume's name: the message names the image
		}
		failed.Image = w.Spec.Volume.Image.Reference
		return failed
	}
	return nil
}

// waits reports whether the volume is in back-off after a failed mount, and returns the problem of that mount. A
// change of the volume's inputs ends the back-off, as does DiskFreed if the mount failed because of a disk.
func (m *Manager) waits(ctx context.Context, w *volumestate.Wanted) (volumestate.Problem, bool) {
	until, err := m.ops.Failed(w.Key(), volumestate.Mount+w.Name())
	if err == nil || !time.Now().Before(until) {
		return volumestate.Problem{}, false
	}
	m.mu.Lock()
	before := m.failed[w.Place.UID][w.Name()]
	m.mu.Unlock()
	if atomicfile.DiskFails(err) && before.freed != m.freed.Load() ||
		!before.inputs.Same(m.observe(ctx, w, m.newest(w))) {
		return volumestate.Problem{}, false
	}
	return volumestate.Problem{Spec: w.Spec, Err: err, Until: until}, true
}
