package spec

import v1 "k8s.io/api/core/v1"

// claimDefaults fills in missing fields of a PersistentVolumeClaim, in place. It is idempotent.
func claimDefaults(s *v1.PersistentVolumeClaimSpec) {
	orPointer(&s.VolumeMode, v1.PersistentVolumeFilesystem)
}

// persistentVolumeDefaults fills in missing fields of a PersistentVolume, in place. It is idempotent.
func persistentVolumeDefaults(s *v1.PersistentVolumeSpec) {
	orDefault(&s.PersistentVolumeReclaimPolicy, v1.PersistentVolumeReclaimRetain)
	orPointer(&s.VolumeMode, v1.PersistentVolumeFilesystem)
	hostPath(s.HostPath)
	azureDisk(s.AzureDisk)
	if s.ISCSI != nil {
		orDefault(&s.ISCSI.ISCSIInterface, iscsiInterface)
	}
	if s.RBD != nil {
		ceph(&s.RBD.RBDPool, &s.RBD.RadosUser, &s.RBD.Keyring)
	}
	if s.ScaleIO != nil {
		scaleIO(&s.ScaleIO.StorageMode, &s.ScaleIO.FSType)
	}
}

// The functions below set the defaults of sources that both pods' volumes and PersistentVolumes may have, in some
// cases with different types.

func hostPath(s *v1.HostPathVolumeSource) {
	if s != nil {
		orPointer(&s.Type, v1.HostPathUnset)
	}
}

func azureDisk(s *v1.AzureDiskVolumeSource) {
	if s == nil {
		return
	}
	orPointer(&s.CachingMode, v1.AzureDataDiskCachingReadWrite)
	orPointer(&s.Kind, v1.AzureSharedBlobDisk)
	orPointer(&s.FSType, "ext4")
	orPointer(&s.ReadOnly, false)
}

func ceph(pool, user, keyring *string) {
	orDefault(pool, "rbd")
	orDefault(user, "admin")
	orDefault(keyring, "/etc/ceph/keyring")
}

func scaleIO(mode, fsType *string) {
	orDefault(mode, "ThinProvisioned")
	orDefault(fsType, "xfs")
}
