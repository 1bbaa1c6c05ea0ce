package binder

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// admitted returns the claim and the PersistentVolume of a pod from an API server. The cluster's controllers bind
// claims; this node only checks that the claim and the volume refer to each other.
func (b *Binder) admitted(ctx context.Context, p *v1.Pod, objects Objects,
	v *v1.Volume) (*v1.PersistentVolumeClaim, *v1.PersistentVolume, error) {
	id := claimID{Namespace: p.Namespace}
	switch {
	case v.PersistentVolumeClaim != nil:
		id.Name = v.PersistentVolumeClaim.ClaimName
	case v.Ephemeral != nil:
		id.Name = ephemeral.VolumeClaimName(p, v)
	default:
		return nil, nil, fmt.Errorf("volume %s is no claim", v.Name)
	}
	claim, err := objects.PersistentVolumeClaim(ctx, id.Namespace, id.Name)
	switch {
	case err != nil:
		return nil, nil, volume.Awaits(id.object(), "%w", err)
	case v.Ephemeral != nil && !metav1.IsControlledBy(claim, p):
		return nil, nil, id.awaits(
			"it wasn't created for this pod, and the pod's ephemeral volume %s needs a claim of this name: remove "+
				"the claim, or rename the volume", v.Name)
	case claim.Status.Phase != v1.ClaimBound || claim.Spec.VolumeName == "":
		return nil, nil, id.awaits("it isn't bound to a PersistentVolume (its phase is %s)", claim.Status.Phase)
	}
	awaits := func(format string, args ...any) error {
		o := pod.Object{Kind: string(object.PersistentVolume), Name: claim.Spec.VolumeName}
		return volume.Awaits(o, "%s: it is bound to PersistentVolume %s: %w", id, claim.Spec.VolumeName,
			fmt.Errorf(format, args...))
	}
	pv, err := objects.PersistentVolume(ctx, claim.Spec.VolumeName)
	if err != nil {
		return claim, nil, awaits("%w", err)
	}
	if r := pv.Spec.ClaimRef; r == nil || r.UID != claim.UID {
		return claim, nil, awaits("that is bound to another claim")
	}
	// If a CSI driver has replaced the PersistentVolume's kind, the volume's node affinity may name labels that nodes
	// no longer have. Migrate replaces them by the driver's labels, which nodes have.
	s, err := volume.Spec{Volume: v, Claim: claim, Persistent: pv}.Migrate(p.Namespace)
	if err != nil {
		return claim, nil, awaits("%w", err)
	}
	if why := b.elsewhere(s.Persistent); why != "" {
		return claim, nil, awaits("%s", why)
	}
	return claim, pv, nil
}
