package csi

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// source describes a volume of a CSI driver, inline or of a PersistentVolume.
type source struct {
	driver, handle string
	// name is the volume's name in the record.
	name       string
	lifecycle  storagev1.VolumeLifecycleMode
	fsType     string
	readOnly   bool
	attributes map[string]string
	// publish and stage are the Secrets that the driver gets when it publishes and stages the volume.
	publish, stage *v1.SecretReference
	// access are the access modes of the PersistentVolume, options its mount options.
	access  []v1.PersistentVolumeAccessMode
	options []string
	// migrated says that the volume is of a kind that the driver has replaced.
	migrated bool
}

// sourceOf returns the description of a pod's volume.
func sourceOf(p *v1.Pod, s volume.Spec) (source, error) {
	if s.Persistent != nil {
		return persistent(s)
	}
	c := s.Volume.CSI
	sum := sha256.Sum256([]byte(string(p.UID) + s.Volume.Name))
	of := source{driver: c.Driver, handle: "csi-" + hex.EncodeToString(sum[:]), name: s.Volume.Name,
		lifecycle: storagev1.VolumeLifecycleEphemeral, fsType: ptr.Deref(c.FSType, ""),
		readOnly: ptr.Deref(c.ReadOnly, false), attributes: c.VolumeAttributes}
	if ref := c.NodePublishSecretRef; ref != nil {
		of.publish = &v1.SecretReference{Namespace: p.Namespace, Name: ref.Name}
	}
	return of, nil
}

// persistent describes a PersistentVolume.
func persistent(s volume.Spec) (source, error) {
	pv := s.Persistent
	c := pv.Spec.CSI
	for _, o := range pv.Spec.MountOptions {
		if strings.ContainsAny(o, "\n\x00") {
			return source{}, fmt.Errorf("PersistentVolume %s: mount option %q has a line break or a NUL in it",
				pv.Name, o)
		}
	}
	if c.VolumeHandle == "" || strings.Contains(c.VolumeHandle, "\x00") {
		return source{}, fmt.Errorf("PersistentVolume %s: its volumeHandle is empty or has a NUL in it", pv.Name)
	}
	return source{driver: c.Driver, handle: c.VolumeHandle, name: pv.Name,
		lifecycle: storagev1.VolumeLifecyclePersistent, fsType: c.FSType, readOnly: c.ReadOnly || s.ReadOnly(),
		attributes: c.VolumeAttributes, publish: c.NodePublishSecretRef, stage: c.NodeStageSecretRef,
		access: pv.Spec.AccessModes, options: pv.Spec.MountOptions, migrated: s.Migrated}, nil
}

// record returns the record of the volume for this node.
func (s *source) record(node string) record {
	return record{keyDriver: s.driver, keyHandle: s.handle, keyVolume: s.name, keyNode: node,
		keyLifecycle: string(s.lifecycle), keyAttached: object.AttachmentName(s.driver, s.handle, node)}
}

// key identifies the volume of a PersistentVolume.
func (s *source) key() string { return deviceKey(s.driver, s.handle) }

// inline reports whether the volume is one of the pod's own.
func (s *source) inline() bool { return s.lifecycle == storagev1.VolumeLifecycleEphemeral }

// capability describes how a pod with this fsGroup uses the volume, for a driver with these capabilities.
func (s *source) capability(p *v1.Pod, by *registration) *spec.VolumeCapability {
	mount := &spec.VolumeCapability_MountVolume{FsType: s.fsType, MountFlags: s.options}
	if gid, ok := volume.FSGroup(p); ok && by.mountsGroup {
		mount.VolumeMountGroup = fmt.Sprint(gid)
	}
	return &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Mount{Mount: mount},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: s.accessMode(by.multiWriter)}}
}

// accessMode is the first of the volume's access modes, or ReadWriteOnce, converted to CSI. multiWriter says that the
// driver distinguishes volumes for one pod from volumes for all pods of a node.
func (s *source) accessMode(multiWriter bool) spec.VolumeCapability_AccessMode_Mode {
	mode := v1.ReadWriteOnce
	if len(s.access) > 0 {
		mode = s.access[0]
	}
	switch {
	case mode == v1.ReadOnlyMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY
	case mode == v1.ReadWriteMany:
		return spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER
	case multiWriter && mode == v1.ReadWriteOncePod:
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER
	case multiWriter:
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER
	default:
		return spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER
	}
}

// ownership reports whether the agent has to apply the fsGroup to the volume's files (API:
// CSIDriverSpec.fsGroupPolicy). An inline volume counts as ReadWriteOnce.
func (s *source) ownership(policy storagev1.FSGroupPolicy) bool {
	if s.readOnly {
		return false
	}
	switch policy {
	case storagev1.FileFSGroupPolicy:
		return true
	case storagev1.ReadWriteOnceWithFSTypeFSGroupPolicy, "":
		once := s.inline()
		for _, mode := range s.access {
			once = once || mode == v1.ReadWriteOnce || mode == v1.ReadWriteOncePod
		}
		return once && s.fsType != ""
	default:
		return false
	}
}
