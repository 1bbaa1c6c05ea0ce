package binder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// fromTemplate returns the claim of an ephemeral volume. If another claim with its name exists, the pod must not
// start (KEP-1698).
func (b *Binder) fromTemplate(ctx context.Context, p *v1.Pod, objects Objects, v *v1.Volume) (request, error) {
	c := claimOf(p, v)
	r := request{claimID{Namespace: c.Namespace, Name: c.Name, Pod: p.UID}, c}
	if _, bound := b.bound.of(r.id); bound {
		return r, nil
	}
	switch _, err := objects.PersistentVolumeClaim(ctx, c.Namespace, c.Name); {
	case err == nil:
		return r, r.awaits("a manifest defines a claim of this name, which isn't the one of the pod's ephemeral "+
			"volume %s; rename that claim or the volume", v.Name)
	case !apierrors.IsNotFound(err):
		return r, r.awaits("the claim of the pod's ephemeral volume %s can't be made yet: %w", v.Name, err)
	}
	return r, nil
}

// claimOf makes the claim of a pod's ephemeral volume. For the same pod and volume, the claim is always the same,
// with the same UID.
func claimOf(p *v1.Pod, v *v1.Volume) *v1.PersistentVolumeClaim {
	template := v.Ephemeral.VolumeClaimTemplate.DeepCopy()
	c := &v1.PersistentVolumeClaim{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	c.SetGroupVersionKind(object.PersistentVolumeClaim.GroupVersionKind())
	c.Namespace, c.Name = p.Namespace, ephemeral.VolumeClaimName(p, v)
	sum := sha256.Sum256(fmt.Appendf(nil, "pod:%s\nvolume:%s\n", p.UID, v.Name))
	c.UID = types.UID(hex.EncodeToString(sum[:16]))
	c.CreationTimestamp = p.CreationTimestamp
	c.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(p, v1.SchemeGroupVersion.WithKind("Pod"))}
	return c
}
