package binder_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// cluster is what a pod of an API server sees.
type cluster struct {
	object.View
	claim *v1.PersistentVolumeClaim
	pv    *v1.PersistentVolume
}

func (cluster) Admitted() bool { return true }

func (c cluster) PersistentVolumeClaim(_ context.Context, _, name string) (*v1.PersistentVolumeClaim, error) {
	if c.claim == nil || c.claim.Name != name {
		return nil, apierrors.NewNotFound(v1.Resource("persistentvolumeclaims"), name)
	}
	return c.claim, nil
}

func (c cluster) PersistentVolume(_ context.Context, name string) (*v1.PersistentVolume, error) {
	if c.pv == nil || c.pv.Name != name {
		return nil, &object.Unknown{Key: object.Key{Kind: object.PersistentVolume, Name: name}, Why: "it is being asked for"}
	}
	return c.pv, nil
}

// TestAdmitted: what an API server's controllers have bound is believed when both sides say so, and nothing is bound here.
func TestAdmitted(t *testing.T) {
	n := start(t)
	const stranger = types.UID("other")
	for name, tc := range map[string]struct {
		change func(c *cluster, p *v1.Pod)
		// awaits is the object that the pod waits for, why what it is told.
		awaits, why string
	}{
		"bound":                                {func(*cluster, *v1.Pod) {}, "", ""},
		"no claim":                             {func(c *cluster, _ *v1.Pod) { c.claim = nil }, "PersistentVolumeClaim default/data", "not found"},
		"unbound":                              {func(c *cluster, _ *v1.Pod) { c.claim.Status.Phase, c.claim.Spec.VolumeName = v1.ClaimPending, "" }, "PersistentVolumeClaim default/data", "isn't bound"},
		"lost":                                 {func(c *cluster, _ *v1.Pod) { c.claim.Status.Phase = v1.ClaimLost }, "PersistentVolumeClaim default/data", "Lost"},
		"half bound":                           {func(c *cluster, _ *v1.Pod) { c.pv.Spec.ClaimRef = nil }, "PersistentVolume pv1", "another claim"},
		"of an earlier claim":                  {func(c *cluster, _ *v1.Pod) { c.pv.Spec.ClaimRef.UID = stranger }, "PersistentVolume pv1", "another claim"},
		"volume isn't known":                   {func(c *cluster, _ *v1.Pod) { c.pv = nil }, "PersistentVolume pv1", "being asked"},
		"volume is elsewhere":                  {func(c *cluster, _ *v1.Pod) { c.pv.Spec.NodeAffinity = on("node2") }, "PersistentVolume pv1", "can't be used on this node"},
		"volume is here":                       {func(c *cluster, _ *v1.Pod) { c.pv.Spec.NodeAffinity = on("node1") }, "", ""},
		"migrated, here by the driver's label": {func(c *cluster, _ *v1.Pod) { c.pv.Spec = disk(c.pv.Spec, "zone-a") }, "", ""},
		"migrated, elsewhere by it":            {func(c *cluster, _ *v1.Pod) { c.pv.Spec = disk(c.pv.Spec, "zone-b") }, "PersistentVolume pv1", "the node has topology.ebs.csi.aws.com/zone=zone-a"},
		"not to be migrated": {func(c *cluster, _ *v1.Pod) {
			c.pv.Spec.AWSElasticBlockStore = &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://x/y"}
		}, "PersistentVolume pv1", "can't be translated"},
		"ephemeral": {func(c *cluster, p *v1.Pod) {
			c.claim.Name, c.claim.OwnerReferences = "web-data", []metav1.OwnerReference{{UID: p.UID, Controller: ptr.To(true)}}
		}, "", ""},
		"ephemeral of another pod": {func(c *cluster, p *v1.Pod) {
			c.claim.Name, c.claim.OwnerReferences = "web-data", []metav1.OwnerReference{{UID: stranger, Controller: ptr.To(true)}}
		},
			"PersistentVolumeClaim default/web-data", "wasn't created for this pod"},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
		c := cluster{claim: &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: "c"}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "pv1"}},
			pv: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv1"}, Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{Namespace: "default", Name: "data", UID: "c"}}}}
		c.claim.Status.Phase = v1.ClaimBound
		tc.change(&c, p)
		v := &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}
		if strings.HasPrefix(name, "ephemeral") {
			v.VolumeSource = v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}
		}
		claim, pv, err := n.Bind(t.Context(), p, c, v)
		var awaits *volume.AwaitsError
		switch {
		case tc.why == "":
			if err != nil || claim != c.claim || pv != c.pv {
				t.Errorf("%s: %v", name, err)
			}
		case !errors.As(err, &awaits) || awaits.Object.String() != tc.awaits || !strings.Contains(err.Error(), tc.why):
			t.Errorf("%s: %v", name, err)
		}
	}
	if uids := n.Pods(); len(uids) > 0 || len(n.events) > 0 {
		t.Errorf("kept of them: %v, %q", uids, n.events)
	}
}

// on is the affinity of a volume that is on a node.
func on(name string) *v1.VolumeNodeAffinity {
	return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
		{Key: v1.LabelHostname, Operator: v1.NodeSelectorOpIn, Values: []string{name}}}}}}}
}

// ebsZone is the label of nodes with the driver that has replaced awsElasticBlockStore.
const ebsZone = "topology.ebs.csi.aws.com/zone"

// disk is a volume of the kind awsElasticBlockStore in a zone, with a label that nodes don't have any more.
func disk(s v1.PersistentVolumeSpec, zone string) v1.PersistentVolumeSpec {
	s.AWSElasticBlockStore = &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}
	s.NodeAffinity = on(zone)
	s.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Key = v1.LabelFailureDomainBetaZone
	return s
}
