package volumestate_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/csi"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/plugins"
)

// bound binds every claim to one PersistentVolume.
type bound struct{ pv *v1.PersistentVolume }

func (b bound) Bind(context.Context, *v1.Pod, object.View, *v1.Volume) (*v1.PersistentVolumeClaim, *v1.PersistentVolume,
	error) {
	return &v1.PersistentVolumeClaim{}, b.pv, nil
}
func (bound) Forget(context.Context, types.UID) error { return nil }
func (bound) Pods() []types.UID                       { return nil }

// planned returns the plan for a pod with these volumes, which are named a, b, and so on.
func planned(pv *v1.PersistentVolume, sources ...v1.VolumeSource) ([]*volumestate.Wanted, []volumestate.Problem) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u-1"}, Spec: v1.PodSpec{
		Containers: []v1.Container{{Name: "main"}}}}
	for i, s := range sources {
		name := string(rune('a' + i))
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: s})
		p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, v1.VolumeMount{Name: name})
	}
	drivers := csi.NewPlugin(csi.NewDrivers(csi.Config{NoController: true}), "/none")
	return volumestate.Plan(context.Background(), []volume.Plugin{drivers, plugins.Unsupported{}}, bound{pv}, p,
		[]*v1.Container{&p.Spec.Containers[0]}, nil)
}

func gce(readOnly bool) v1.VolumeSource {
	return v1.VolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d", ReadOnly: readOnly}}
}

var claim = v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}

// TestPlanMigrates: the CSI plugin gets the volumes that its drivers have replaced, at the kubelet's place.
func TestPlanMigrates(t *testing.T) {
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	pv.Spec.Cinder = &v1.CinderPersistentVolumeSource{VolumeID: "c"}
	wants, problems := planned(pv, gce(false), claim, v1.VolumeSource{
		AzureDisk: &v1.AzureDiskVolumeSource{DataDiskURI: "/subscriptions/d"}})
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	for i, name := range []string{"pd.csi.storage.gke.io-d", "~subscriptions~d", "pv-1"} { // claims are last
		w := wants[i]
		if w.Place != (volumestate.Place{UID: "u-1", Plugin: "kubernetes.io~csi", Name: name}) || !w.Spec.Migrated {
			t.Errorf("%+v %+v", w.Place, w.Spec)
		}
	}
}

// TestPlanOneDiskTwice: with the same parameters two volumes of a pod share a disk. Otherwise one of them waits, or
// the driver would get calls with different parameters for one path.
func TestPlanOneDiskTwice(t *testing.T) {
	if wants, problems := planned(nil, gce(true), gce(true)); len(problems) > 0 || wants[0].Place != wants[1].Place {
		t.Errorf("the same volume twice: %v, %v", wants, problems)
	}
	wants, problems := planned(nil, gce(true), gce(false))
	if len(wants) != 1 || wants[0].Writable || len(problems) != 1 || !problems[0].Permanent() ||
		!strings.Contains(problems[0].String(), `volume "a" of the pod is the same disk`) {
		t.Errorf("with other parameters: %v, %v", wants, problems)
	}
	// A PersistentVolume may have the same name by accident.
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pd.csi.storage.gke.io-d"}}
	pv.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "pd.csi.storage.gke.io", VolumeHandle: "d"}
	if wants, _ := planned(pv, gce(true), claim); len(wants) != 2 || wants[0].Writable {
		t.Errorf("an inline volume has no claim that could be mounted writable: %v", wants)
	}
}

// TestPlanUntranslatable: a pod's own volume can't be corrected, a PersistentVolume can.
func TestPlanUntranslatable(t *testing.T) {
	disk := &v1.AzureDiskVolumeSource{Kind: ptr.To(v1.AzureSharedBlobDisk)}
	_, problems := planned(nil, v1.VolumeSource{AzureDisk: disk})
	if len(problems) != 1 || !problems[0].Permanent() || !strings.Contains(problems[0].String(), "kind(Shared)") {
		t.Error(problems)
	}
	pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv-1"}}
	pv.Spec.AzureDisk = disk
	_, problems = planned(pv, claim)
	if awaits, ok := errors.AsType[*volume.AwaitsError](problems[0].Err); !ok || awaits.Object.Name != "pv-1" ||
		problems[0].Permanent() {
		t.Error(problems)
	}
}
