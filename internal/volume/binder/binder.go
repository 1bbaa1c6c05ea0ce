// Package binder gives PersistentVolumeClaims their PersistentVolumes where no API server does:
// on one node, both from manifests, without StorageClasses. What an API server's pods claim is bound there, and only
// looked up.
//
// A claim is bound when the first pod that uses it is prepared (what a StorageClass calls
// WaitForFirstConsumer), to a volume that this node can use. It stays with that volume, however
// often the agent is restarted and whatever is edited: a claim is never moved to another
// volume, and no volume is given to two claims. Pods that are prepared after an edit that
// contradicts a binding wait, with the reason. What is bound is on disk before a pod gets to
// see it.
package binder

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// Objects are the claims and volumes that manifests define: as much of an object.View as is needed of it.
type Objects interface {
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// PersistentVolumes returns all there are, or an error.
	PersistentVolumes(ctx context.Context) ([]*v1.PersistentVolume, error)
}

// Recorder takes in events.
type Recorder interface {
	Event(p *v1.Pod, e pod.Event)
}

// Config says what a binder works with.
type Config struct {
	// Dir is the directory of the record of what is bound, which is made if need be
	// (mode 0700). One binder may use it at a time.
	Dir string
	// NodeLabels returns the node's, by which volumes say where they can be used.
	NodeLabels func() map[string]string
	// Objects are those by which volumes are released. A claim of a pod is looked for in what that pod sees.
	Objects  Objects
	Recorder Recorder
}

// Binder binds claims to volumes. It is safe for concurrent use.
//
// It makes no volumes, doesn't grow them and doesn't delete what is in them. Every volume is
// kept as the reclaim policy Retain says, those of the policies Delete and Recycle with a warning:
//
//   - A claim whose manifest is gone has released its volume, which only a claim of the same
//     namespace and name can get. Where an API server tells claims apart by UID, here a manifest
//     that comes back is the same claim: manifests come and go with a file that is moved or
//     restored. The claim stays bound while a pod that uses it is left, whatever becomes of the
//     manifests (the API's finalizer kubernetes.io/pvc-protection); new pods wait for the manifest.
//   - The claim of an ephemeral volume (KEP-1698) belongs to its pod alone, and goes with it. No
//     claim gets what it has released.
//   - A released volume is free once its manifest was gone, too, and no pod was left that uses
//     it, for as long as it takes the binder to see that: so people say that its data may be
//     had, or are no more. If both come back, because a file with all of them was moved away for
//     a while, they are bound as before, unless another claim got the volume meanwhile.
//   - A claim waits for a volume whose manifest is gone while its own isn't.
type Binder struct {
	conf Config
	log  logr.Logger
	path string

	mu    sync.Mutex
	bound bindings
	// unknown says why it isn't known what was bound before; nil if it is.
	unknown error
}

// New returns a binder that binds nothing before Restore was called.
func New(c Config, log logr.Logger) *Binder {
	return &Binder{
		conf: c, log: log, path: filepath.Join(c.Dir, recordName), bound: bindings{},
		unknown: errors.New("it hasn't been read yet what was bound before the agent started"),
	}
}

// request is a pod's wish for a volume.
type request struct {
	id    claimID
	claim *v1.PersistentVolumeClaim
}

// awaits returns an error about the claim.
func (r request) awaits(format string, args ...any) error { return r.id.awaits(format, args...) }

func (id claimID) awaits(format string, args ...any) error {
	return volume.Awaits(id.object(), "%s: %w", id, fmt.Errorf(format, args...))
}

// Bind returns the claim that is behind a volume of the pod (persistentVolumeClaim or
// ephemeral), and the PersistentVolume it is bound to, which is bound now if it is the first pod
// to use it. Both are read-only, and as their manifests have them.
//
// The error is a *volume.AwaitsError if an edit of manifests can help: then Bind is called
// again when objects have changed. Any other may go away by itself, as that of a full disk does,
// unless it wraps volume.ErrUnsupported.
func (b *Binder) Bind(ctx context.Context, p *v1.Pod, objects object.View,
	v *v1.Volume) (*v1.PersistentVolumeClaim, *v1.PersistentVolume, error) {
	if objects.Admitted() {
		return b.admitted(ctx, p, objects, v)
	}
	r, pv, fresh, err := b.bind(ctx, p, objects, v)
	if err != nil {
		return nil, nil, err
	}
	if fresh {
		b.recordEvent(p, r, pv)
	}
	return r.claim, pv, nil
}

func (b *Binder) bind(ctx context.Context, p *v1.Pod, objects Objects,
	v *v1.Volume) (r request, pv *v1.PersistentVolume, fresh bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, err = b.request(ctx, p, objects, v); err != nil {
		return r, nil, false, err
	}
	if had, ok := b.bound.of(r.id); ok {
		if pv, err = b.held(ctx, objects, r, had.Volume); err == nil {
			err = b.use(had, p.UID)
		}
		return r, pv, false, err
	}
	pv, err = b.first(ctx, objects, r, p.UID)
	return r, pv, b.unknown == nil, err
}

// use notes that a pod uses a claim, before it gets to see the volume.
func (b *Binder) use(had binding, uid types.UID) error {
	next := had.usedBy(uid)
	if len(next.Users) == len(had.Users) {
		return nil
	}
	if err := b.save(b.bound.with(next)); err != nil {
		return fmt.Errorf("%s is bound to PersistentVolume %s, but isn't given to the pod: %w", had.Claim, had.Volume,
			err)
	}
	return nil
}

// request finds out which claim is meant.
func (b *Binder) request(ctx context.Context, p *v1.Pod, objects Objects, v *v1.Volume) (request, error) {
	switch {
	case v.PersistentVolumeClaim != nil:
		return b.fromManifest(ctx, objects, p.Namespace, v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		return b.fromTemplate(ctx, p, objects, v)
	}
	return request{}, fmt.Errorf("volume %s is no claim", v.Name)
}

func (b *Binder) fromManifest(ctx context.Context, objects Objects, namespace, name string) (request, error) {
	id := claimID{Namespace: namespace, Name: name}
	c, err := objects.PersistentVolumeClaim(ctx, namespace, name)
	if err != nil {
		return request{}, volume.Awaits(id.object(), "%w", err)
	}
	r := request{id, c}
	if _, bound := b.bound.of(id); bound {
		return r, nil
	}
	if other, ok := b.bound.ephemeral(namespace, name); ok {
		return r, r.awaits("the name is also that of an ephemeral volume's claim, of the pod with UID %s; rename one "+
			"of them", other.Claim.Pod)
	}
	return r, nil
}

// held returns the volume that a claim has been bound to, if it can still be used for it.
func (b *Binder) held(ctx context.Context, objects Objects, r request, name string) (*v1.PersistentVolume, error) {
	pv, err := objects.PersistentVolume(ctx, name)
	switch {
	case gone(err):
		return nil, r.awaits("it is lost: PersistentVolume %s, which it is bound to, is defined by no manifest any "+
			"more; add that again, "+
			"or remove the claim's as well, and the pods that use it, for a while, to have it bound again", name)
	case err != nil:
		return nil, r.awaits("it is bound to PersistentVolume %s: %w", name, err)
	}
	const stays = "a claim stays with its volume: take that edit back, or remove both manifests, and the pods that " +
		"use it, for a while, to have it bound again"
	switch want := r.claim.Spec.VolumeName; {
	case want != "" && want != name:
		return nil, r.awaits("it is bound to PersistentVolume %s, but asks for %s now (spec.volumeName); %s", name,
			want, stays)
	case pv.Spec.ClaimRef != nil && !reserved(pv, r.claim):
		return nil, r.awaits("it is bound to PersistentVolume %s, which %s; %s", name, reservedFor(pv, r.claim), stays)
	}
	if why := otherMode(r.claim, pv); why != "" {
		return nil, r.awaits("it is bound to PersistentVolume %s: %s; %s", name, why, stays)
	}
	if why := b.elsewhere(pv); why != "" {
		return nil, r.awaits("it is bound to PersistentVolume %s: %s", name, why)
	}
	return pv, nil
}

// first binds a claim that isn't bound yet, for a pod.
func (b *Binder) first(ctx context.Context, objects Objects, r request, uid types.UID) (*v1.PersistentVolume, error) {
	if err := fromNothing(r); err != nil {
		return nil, err
	}
	pvs, err := objects.PersistentVolumes(ctx)
	if err != nil {
		return nil, r.awaits("it can't be bound yet: %w", err)
	}
	if b.unknown != nil {
		return b.withoutRecord(ctx, r, pvs)
	}
	if err := b.tidy(ctx, pvs); err != nil {
		return nil, err
	}
	pv, err := b.pick(ctx, r, pvs)
	if err != nil {
		return nil, err
	}
	if err := b.save(b.bound.with(binding{Volume: pv.Name, Claim: r.id}.usedBy(uid))); err != nil {
		return nil, fmt.Errorf("%s fits PersistentVolume %s, but isn't bound to it: %w", r.id, pv.Name, err)
	}
	return pv, nil
}

// fromNothing refuses a claim that is to be filled before it is used.
func fromNothing(r request) error {
	if r.claim.Spec.DataSource == nil && r.claim.Spec.DataSourceRef == nil {
		return nil
	}
	const why = "it has a dataSource or dataSourceRef, which a provisioner would make a volume of, and there is none " +
		"here; " +
		"leave it out, and put the data into the PersistentVolume yourself"
	if r.id.Pod != "" { // in the pod's spec, which can't be edited
		return fmt.Errorf("%s: %s: %w", r.id, why, volume.ErrUnsupported)
	}
	return r.awaits(why)
}

// withoutRecord returns the only volume that is surely right for a claim while it isn't
// known what was bound before: the one that it names, and that names it, in their
// manifests. Any other may hold another claim's data, or another one this claim's.
func (b *Binder) withoutRecord(ctx context.Context, r request,
	pvs []*v1.PersistentVolume) (*v1.PersistentVolume, error) {
	if r.id.Pod == "" {
		for _, pv := range pvs {
			if pv.Name == r.claim.Spec.VolumeName && reserved(pv, r.claim) {
				return b.pick(ctx, r, pvs)
			}
		}
	}
	return nil, r.awaits("it isn't known which PersistentVolume is its own: %w", b.unknown)
}

// Tidy releases volumes that were released, that no pod uses and whose manifests are gone. It is to be called
// when objects have changed: a volume that comes back later is anybody's only if
// its absence was seen.
func (b *Binder) Tidy(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.letGo(ctx)
}

// letGo is tidy, unless it isn't known yet which volumes there are.
func (b *Binder) letGo(ctx context.Context) error {
	if b.unknown != nil {
		return nil
	}
	pvs, err := b.conf.Objects.PersistentVolumes(ctx)
	if object.IsUnknown(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return b.tidy(ctx, pvs)
}

func (b *Binder) tidy(ctx context.Context, pvs []*v1.PersistentVolume) error {
	defined := make(map[string]bool, len(pvs))
	for _, pv := range pvs {
		defined[pv.Name] = true
	}
	next, changed := b.bound.without(func(had binding) bool {
		return !defined[had.Volume] && len(had.Users) == 0 && b.released(ctx, had) && b.missing(ctx, had.Volume)
	})
	if !changed {
		return nil
	}
	if err := b.save(next); err != nil {
		return fmt.Errorf("can't release PersistentVolumes that no manifest defines any more: %w", err)
	}
	return nil
}

// released reports whether the claim that a volume is bound to is gone.
func (b *Binder) released(ctx context.Context, had binding) bool {
	if had.Claim.Pod != "" {
		return had.Released
	}
	_, err := b.conf.Objects.PersistentVolumeClaim(ctx, had.Claim.Namespace, had.Claim.Name)
	return gone(err)
}

// missing reports whether a volume is gone still: it may have come back with the edit that took its claim.
func (b *Binder) missing(ctx context.Context, name string) bool {
	_, err := b.conf.Objects.PersistentVolume(ctx, name)
	return gone(err)
}

// gone reports whether no manifest defines what wasn't to be had; a mistake in one takes nothing away.
func gone(err error) bool { return apierrors.IsNotFound(err) && !errors.Is(err, object.ErrRefused) }

// Forget says that a pod is gone: it uses no claim any more, and the claims of its ephemeral volumes
// are gone with it. It is to be called before everything else that records the pod is deleted, and again after an
// error.
func (b *Binder) Forget(ctx context.Context, uid types.UID) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	next, changed := b.bound.forget(uid)
	if !changed {
		return nil
	}
	if err := b.save(next); err != nil {
		return fmt.Errorf("can't release the claims of the pod with UID %s: %w", uid, err)
	}
	if err := b.letGo(ctx); err != nil { // which the pod needn't wait for: it is tried again by Tidy
		b.log.Error(err, "Can't release the volumes of a removed pod yet", "podUID", uid)
	}
	return nil
}

// Pods lists the pods that use claims, or have claims of their own, and weren't forgotten, in order.
func (b *Binder) Pods() []types.UID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bound.pods()
}

// recordEvent reports that a claim was bound, and of what people may expect of its volume in vain.
func (b *Binder) recordEvent(p *v1.Pod, r request, pv *v1.PersistentVolume) {
	b.log.V(2).Info("Claim bound", "persistentVolumeClaim", klog.KRef(r.id.Namespace, r.id.Name),
		"persistentVolume", klog.KObj(pv), "podUID", p.UID)
	switch policy := pv.Spec.PersistentVolumeReclaimPolicy; policy {
	case v1.PersistentVolumeReclaimDelete, v1.PersistentVolumeReclaimRecycle:
		b.conf.Recorder.Event(p,
			pod.Event{Type: v1.EventTypeWarning, Reason: pod.ReasonVolumeIsRetained, Message: fmt.Sprintf(
				"PersistentVolume %s, which %s is bound to, has the reclaim policy %s, but nothing deletes data "+
					"here: it is kept as Retain says",
				pv.Name, r.id, policy)})
	}
}
