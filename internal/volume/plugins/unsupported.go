package plugins

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
)

// Unsupported is the plugin for volumes of types that no other plugin of this build supports: it refuses them, and
// suggests alternatives. Its method Supports is true for every volume, so it has to be the last in a list of
// plugins.
type Unsupported struct{}

// Name is the plugin's name. No directory has this name, because the plugin mounts nothing.
func (Unsupported) Name() string { return "deckhand.io/unsupported" }

// Supports returns true for every volume.
func (Unsupported) Supports(volume.Spec) bool { return true }

// Check returns the same error as Mount, before anything is created for the pod.
func (Unsupported) Check(p *v1.Pod, s volume.Spec) error { return refuse(p, s) }

// Mount returns an error that wraps volume.ErrUnsupported and suggests an alternative.
func (Unsupported) Mount(_ context.Context, r volume.Request) (volume.Mounted, error) {
	return volume.Mounted{}, refuse(r.Pod, r.Spec)
}

func refuse(p *v1.Pod, s volume.Spec) error {
	kind, owner := s.Kind(), ""
	if pv := s.Persistent; pv != nil {
		owner = fmt.Sprintf("PersistentVolume %s: ", pv.Name)
	}
	if kind == "" {
		return fmt.Errorf("%sa volume without a kind is %w: name one, such as emptyDir", owner, volume.ErrUnsupported)
	}
	if text, ok := instead[kind]; ok {
		return fmt.Errorf("%svolumes of the kind %s are %w: %s", owner, kind, volume.ErrUnsupported, text)
	}
	// The type is new in the API and isn't in the table called instead yet; a test detects that.
	return fmt.Errorf("%svolumes of the kind %s are %w", owner, kind, volume.ErrUnsupported)
}

const (
	share = "mount it on the host, and use hostPath or a PersistentVolume of the kind local for that directory"
	disk  = "attach and mount it on the host, and use hostPath or a PersistentVolume of the kind local for that " +
		"directory"
	local = "use emptyDir for scratch space, hostPath or a PersistentVolume of the kind local for data that stays"
	gone  = "Kubernetes has removed it; "
)

// instead maps types of volumes to the alternatives that the error suggests.
var instead = map[string]string{
	"nfs":                  share,
	"glusterfs":            gone + share,
	"cephfs":               gone + share,
	"quobyte":              gone + share,
	"iscsi":                disk,
	"fc":                   disk,
	"rbd":                  gone + disk,
	"flocker":              gone + disk,
	"photonPersistentDisk": gone + disk,
	"scaleIO":              gone + disk,
	"storageos":            gone + disk,
	"flexVolume": "it is deprecated, too; mount the volume on the host yourself, and use hostPath for " +
		"the directory",
	"gitRepo": "it is deprecated for being unsafe; let an init container clone the repository into an emptyDir that " +
		"the other containers mount, too",
	// This plugin gets a claim only if its PersistentVolume wasn't found: the manager resolves claims before it
	// chooses a plugin.
	"persistentVolumeClaim": "the claim isn't bound to a PersistentVolume; add one that it fits, of the kind local " +
		"or hostPath",
	"ephemeral": "its claim isn't bound to a PersistentVolume; add one that it fits, of the kind local or hostPath",
}
