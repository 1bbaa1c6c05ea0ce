package volumestate_test

import (
	"errors"
	"io/fs"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
)

func problem(name string, source v1.VolumeSource, err error) volumestate.Problem {
	return volumestate.Problem{Spec: volume.Spec{Volume: &v1.Volume{Name: name, VolumeSource: source}}, Err: err}
}

// The messages are those by which people and their tools know the kubelet's events.
func TestFailuresAreWordedAsTheKubeletDoes(t *testing.T) {
	configMap := problem("cm", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}, errors.Join(errors.New("a is missing"), fs.ErrPermission))
	hanging := problem("srv", v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/srv"}}, errors.New("still being mounted"))
	hanging.GoesOn = true
	unbound := problem("data", v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}, errors.New("no PersistentVolume fits"))
	bound, block := unbound, unbound
	bound.Spec.Persistent = &v1.PersistentVolume{}
	bound.Spec.Persistent.Name = "pv-1"
	device := v1.PersistentVolumeBlock
	block.Spec.Persistent = bound.Spec.Persistent.DeepCopy()
	block.Spec.Persistent.Spec.VolumeMode = &device
	for name, c := range map[string]struct {
		problems []volumestate.Problem
		reason   pod.Reason
		want     string
	}{
		"several errors in one line": {[]volumestate.Problem{configMap}, "FailedMount", `MountVolume.SetUp failed for volume "cm" : a is missing; permission denied`},
		"bound":                      {[]volumestate.Problem{bound}, "FailedMount", `MountVolume.SetUp failed for volume "pv-1" : no PersistentVolume fits`},
		"block":                      {[]volumestate.Problem{block}, "FailedMapVolume", `MapVolume.SetUp failed for volume "pv-1" : no PersistentVolume fits`},
		"hanging": {[]volumestate.Problem{hanging}, "FailedMount",
			`Unable to attach or mount volumes: unmounted volumes=[srv], unattached volumes=[], failed to process volumes=[]: volume "srv" at /srv: still being mounted`},
		"unbound": {[]volumestate.Problem{unbound}, "FailedMount",
			`Unable to attach or mount volumes: unmounted volumes=[data], unattached volumes=[], failed to process volumes=[data]: volume "data": no PersistentVolume fits`},
		"all": {[]volumestate.Problem{unbound, block, hanging, configMap}, "FailedMount",
			`MapVolume.SetUp failed for volume "pv-1" : no PersistentVolume fits; ` +
				`Unable to attach or mount volumes: unmounted volumes=[data srv], unattached volumes=[], failed to process volumes=[data]: ` +
				`volume "data": no PersistentVolume fits; volume "srv" at /srv: still being mounted; and 1 more`},
	} {
		if f := volumestate.Failure(c.problems); f.Message != c.want || f.Reason != c.reason {
			t.Errorf("%s: got %s: %s, want %s: %s", name, f.Reason, f.Message, c.reason, c.want)
		}
	}
}

// TestFailureOfExpected: a wait without an event hides no other problem.
func TestFailureOfExpected(t *testing.T) {
	attachment := pod.Object{Kind: "VolumeAttachment", Name: "csi-1"}
	waits := problem("a", v1.VolumeSource{CSI: &v1.CSIVolumeSource{}},
		&volume.AwaitsError{Object: attachment, Err: errors.New("it isn't attached yet"), Expected: true})
	refused := problem("b", v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}, volume.Awaits(attachment, "the controller can't attach it"))
	for want, list := range map[bool][]volumestate.Problem{true: {waits, waits}, false: {waits, refused}} {
		if got := volumestate.Failure(list).Expected; got != want {
			t.Errorf("%d volumes: %v", len(list), got)
		}
	}
}

// TestFailureOfUnknown: a volume of which nobody can tell yet is told apart from one that fails.
func TestFailureOfUnknown(t *testing.T) {
	unknown := &object.Unknown{Key: object.Key{Kind: object.Secret, Namespace: "default", Name: "s"}, Why: "it is being asked for"}
	waits := problem("s", v1.VolumeSource{Secret: &v1.SecretVolumeSource{}}, volume.Awaits(unknown.Key.Object(), "%w", unknown))
	missing := problem("cm", v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}, volume.Awaits(pod.Object{Kind: "ConfigMap", Name: "cm"}, "it isn't there"))
	if !volumestate.Failure([]volumestate.Problem{missing, waits}).Unknown || volumestate.Failure([]volumestate.Problem{missing}).Unknown {
		t.Error("what isn't known isn't told apart from what isn't there")
	}
}
