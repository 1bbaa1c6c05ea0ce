// Package binder binds PersistentVolumeClaims to PersistentVolumes without an API server: both come from manifests
// on one node, and there are no StorageClasses. For pods from an API server it only checks the binding that the
// cluster's controllers have made.
//
// A claim is bound when the first pod that uses it is prepared (like WaitForFirstConsumer), to a volume that this
// node can use. A binding survives restarts of the agent and edits of manifests: a claim is never moved to another
// volume, and a volume is never bound to two claims. If an edit contradicts a binding, pods that are prepared
// afterwards wait, and their error states the reason. A binding is written to disk before a pod uses the volume.
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

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// Objects reads the claims and volumes that manifests define. It is a part of object.View.
type Objects interface {
	PersistentVolumeClaim(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	PersistentVolume(ctx context.Context, name string) (*v1.PersistentVolume, error)
	// PersistentVolumes returns all PersistentVolumes, or an error.
	PersistentVolumes(ctx context.Context) ([]*v1.PersistentVolume, error)
}

// Recorder records events about pods.
type Recorder interface {
	Event(p *v1.Pod, e pod.Event)
}

// Config configures a Binder.
type Config struct {
	// Dir is the directory of the record of bindings. It is created if necessary (mode 0700). Only one binder may
	// use it.
	Dir string
	// NodeLabels returns the node's labels, for the node affinities of volumes.
	NodeLabels func() map[string]string
	// Objects shows which manifests were removed, so that their volumes can be released. To bind a pod's claims, the
	// pod's own view (the argument of Bind) is used instead.
	Objects  Objects
	Recorder Recorder
	// Writes reports writes of the record that hang; if it is nil, they aren't reported.
	Writes *room.Writes
}

// Binder binds claims to volumes. It is safe for concurrent use.
//
// It doesn't provision, resize or wipe volumes. Every volume is treated according to the reclaim policy Retain;
// Delete and Recycle cause a warning event:
//
//   - When a claim's manifest is removed, its volume is released: only a claim of the same namespace and name can
//     be bound to it. An API server distinguishes claims by UID, but here a manifest that comes back is the same claim,
//     because files of manifests are moved and restored. The claim stays bound while a pod uses it, even without
//     manifests (like the finalizer kubernetes.io/pvc-protection); new pods wait for the manifest.
//   - The claim of an ephemeral volume (KEP-1698) belongs to its pod, and is deleted with the pod. No claim can
//     be bound to the PersistentVolume that it released.
//   - A released volume becomes available when its manifest was removed, too, and no pod uses it: the user has given
//     up the data. The removal counts only if Tidy runs while the manifest is missing. If both manifests come back,
//     because their file was moved away for a while, they are bound as before, unless another claim was bound to the
//     volume meanwhile.
//   - A claim whose volume's manifest was removed waits for that manifest.
type Binder struct {
	conf Config
	log  logr.Logger
	path string

	mu    sync.Mutex
	bound bindings
	// unknown is the reason why the existing bindings aren't available; nil after they were read.
	unknown error
}

// New returns a binder. Restore has to be called before its other methods.
func New(c Config, log logr.Logger) *Binder {
	return &Binder{
		conf: c, log: log, path: filepath.Join(c.Dir, recordName), bound: bindings{},
		unknown: errors.New("it hasn't been read yet what was bound before the agent started"),
	}
}

// request is a pod's request for a claim.
type request struct {
	id    claimID
	claim *v1.PersistentVolumeClaim
}

// awaits returns a volume.AwaitsError about the claim.
func (r request) awaits(format string, args ...any) error { return r.id.awaits(format, args...) }

func (id claimID) awaits(format string, args ...any) error {
	return volume.Awaits(id.object(), "%s: %w", id, fmt.Errorf(format, args...))
}

// Bind returns the claim of a pod's volume (persistentVolumeClaim or ephemeral) and the PersistentVolume that it is
// bound to. It binds the claim if this is the first pod to use it. Both objects are read-only, as in their
// manifests.
//
// The error is a *volume.AwaitsError if a change of the objects can resolve it: then call Bind again when objects
// have changed. Other errors may be temporary, such as a full disk, unless they wrap volume.ErrUnsupported.
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

// use records on disk that a pod uses a claim. It is called before the volume is mounted for the pod.
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

// request returns the claim of the pod's volume.
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

// held returns the volume that a claim is bound to. It returns an error if an edit of manifests contradicts the
// binding, or if this node can't use the volume.
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

// first binds a claim that isn't bound yet, for the first pod that uses it.
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

// fromNothing refuses a claim with a data source.
func fromNothing(r request) error {
	if r.claim.Spec.DataSource == nil && r.claim.Spec.DataSourceRef == nil {
		return nil
	}
	const why = "it has a dataSource or dataSourceRef, which a provisioner would make a volume of, and there is none " +
		"here; " +
		"leave it out, and put the data into the PersistentVolume yourself"
	if r.id.Pod != "" { // an ephemeral claim: its template is in the pod's spec, which can't be edited
		return fmt.Errorf("%s: %s: %w", r.id, why, volume.ErrUnsupported)
	}
	return r.awaits(why)
}

// withoutRecord returns the only volume that is safe for a claim while the existing bindings are unavailable: claim
// and volume name each other in their manifests. Any other volume may contain another claim's data, and this
// claim's data may be on any other volume.
func (b *Binder) withoutRecord(ctx context.Context, r request,
	pvs []*v1.PersistentVolume) (*v1.PersistentVolume, error) {
	if r.id.Pod == "" {
		for _, pv := range pvs {
			if pv.Name == r.claim.Spec.VolumeName && reserved(pv, r.claim) {
				return b.pick(ctx, r, pvs)
			}
		}
	}
	return nil, r.awaits("its PersistentVolume can't be determined: %w", b.unknown)
}

// Tidy makes released volumes available if their manifests were removed and no pod uses them. Call it when objects
// have changed: a volume that comes back later is available to other claims only if Tidy ran while it was missing.
func (b *Binder) Tidy(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.letGo(ctx)
}

// letGo calls tidy with all PersistentVolumes. If the bindings or the volumes aren't available yet, it does nothing.
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

// released reports whether the claim that a volume is bound to was deleted.
func (b *Binder) released(ctx context.Context, had binding) bool {
	if had.Claim.Pod != "" {
		return had.Released
	}
	_, err := b.conf.Objects.PersistentVolumeClaim(ctx, had.Claim.Namespace, had.Claim.Name)
	return gone(err)
}

// missing reports whether no manifest defines the volume. It is checked after its claim was found to be missing: the
// edit that removed the claim may have restored the volume.
func (b *Binder) missing(ctx context.Context, name string) bool {
	_, err := b.conf.Objects.PersistentVolume(ctx, name)
	return gone(err)
}

// gone reports whether an object is defined by no manifest. An object in an invalid manifest doesn't count as gone.
func gone(err error) bool { return apierrors.IsNotFound(err) && !errors.Is(err, object.ErrRefused) }

// Forget releases the claims of a removed pod: it removes the pod from the users of claims, and deletes the claims
// of the pod's ephemeral volumes. Call it before other records of the pod are deleted, and again after an error.
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
	if err := b.letGo(ctx); err != nil { // not an error for the pod's removal: Tidy tries again
		b.log.Error(err, "Can't release the volumes of a removed pod yet", "podUID", uid)
	}
	return nil
}

// Pods lists the pods that use claims or own ephemeral claims, and for which Forget hasn't succeeded yet, sorted by
// UID.
func (b *Binder) Pods() []types.UID {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.bound.pods()
}

// recordEvent logs that a claim was bound, and warns if the volume's reclaim policy isn't applied.
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
