package validation

import (
	"path"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// PersistentSource checks the source of a PersistentVolume. Exactly one source has to be set. The rules of a source are
// the same as in a pod's volume, if a pod's volume can have such a source.
func PersistentSource(s *v1.PersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := exactlyOne(*s, at, "volume")
	same := sameAsPods(s)
	errs = append(errs, nodeSources(same, at)...)
	errs = append(errs, networkSources(same, at)...)
	errs = append(errs, cloudSources(same, at)...)
	if s.Local != nil {
		errs = append(errs, local(s.Local, at.Child("local", "path"))...)
	}
	if s.CSI != nil {
		errs = append(errs, csi(s.CSI, at.Child("csi"))...)
	}
	return append(errs, namespaces(s, at)...)
}

// sameAsPods converts the source to the type of a pod's volume source, for the rules that apply to both.
func sameAsPods(s *v1.PersistentVolumeSource) *v1.VolumeSource {
	out := &v1.VolumeSource{
		HostPath: s.HostPath, NFS: s.NFS, FC: s.FC, Flocker: s.Flocker, Quobyte: s.Quobyte,
		GCEPersistentDisk: s.GCEPersistentDisk, AWSElasticBlockStore: s.AWSElasticBlockStore, AzureDisk: s.AzureDisk,
		VsphereVolume: s.VsphereVolume, PhotonPersistentDisk: s.PhotonPersistentDisk, PortworxVolume: s.PortworxVolume,
	}
	if d := s.ISCSI; d != nil {
		out.ISCSI = &v1.ISCSIVolumeSource{
			TargetPortal: d.TargetPortal, IQN: d.IQN, Lun: d.Lun, InitiatorName: d.InitiatorName,
			DiscoveryCHAPAuth: d.DiscoveryCHAPAuth, SessionCHAPAuth: d.SessionCHAPAuth,
			SecretRef: withoutNamespace(d.SecretRef),
		}
	}
	if d := s.Glusterfs; d != nil {
		out.Glusterfs = &v1.GlusterfsVolumeSource{EndpointsName: d.EndpointsName, Path: d.Path}
	}
	if d := s.RBD; d != nil {
		out.RBD = &v1.RBDVolumeSource{CephMonitors: d.CephMonitors, RBDImage: d.RBDImage}
	}
	if d := s.CephFS; d != nil {
		out.CephFS = &v1.CephFSVolumeSource{Monitors: d.Monitors}
	}
	if d := s.FlexVolume; d != nil {
		out.FlexVolume = &v1.FlexVolumeSource{Driver: d.Driver, Options: d.Options}
	}
	if d := s.Cinder; d != nil {
		out.Cinder = &v1.CinderVolumeSource{VolumeID: d.VolumeID, SecretRef: withoutNamespace(d.SecretRef)}
	}
	if d := s.AzureFile; d != nil {
		out.AzureFile = &v1.AzureFileVolumeSource{SecretName: d.SecretName, ShareName: d.ShareName}
	}
	if d := s.ScaleIO; d != nil {
		out.ScaleIO = &v1.ScaleIOVolumeSource{Gateway: d.Gateway, System: d.System, VolumeName: d.VolumeName}
	}
	if d := s.StorageOS; d != nil {
		out.StorageOS = &v1.StorageOSVolumeSource{VolumeName: d.VolumeName, VolumeNamespace: d.VolumeNamespace}
		if d.SecretRef != nil {
			out.StorageOS.SecretRef = &v1.LocalObjectReference{Name: d.SecretRef.Name}
		}
	}
	return out
}

func withoutNamespace(r *v1.SecretReference) *v1.LocalObjectReference {
	if r == nil {
		return nil
	}
	return &v1.LocalObjectReference{Name: r.Name}
}

// local checks the path of a local volume (API: "the full path to the volume on the node").
func local(s *v1.LocalVolumeSource, at *field.Path) field.ErrorList {
	switch {
	case s.Path == "":
		return field.ErrorList{field.Required(at, "must be the path of a directory or a block device on the node")}
	case !path.IsAbs(s.Path):
		return field.ErrorList{field.Invalid(at, s.Path, "must be an absolute path")}
	}
	return noBacksteps(at, s.Path)
}

func csi(s *v1.CSIPersistentVolumeSource, at *field.Path) field.ErrorList {
	errs := CSIDriverName(s.Driver, at.Child("driver"))
	errs = append(errs, Required(at.Child("volumeHandle"), s.VolumeHandle,
		"must be the driver's name of the volume")...)
	for _, ref := range []struct {
		field  string
		secret *v1.SecretReference
	}{
		{"controllerPublishSecretRef", s.ControllerPublishSecretRef},
		{"nodeStageSecretRef", s.NodeStageSecretRef},
		{"nodePublishSecretRef", s.NodePublishSecretRef},
		{"controllerExpandSecretRef", s.ControllerExpandSecretRef},
		{"nodeExpandSecretRef", s.NodeExpandSecretRef},
	} {
		errs = append(errs, secretRef(withoutNamespace(ref.secret), at.Child(ref.field))...)
		if ref.secret != nil {
			errs = append(errs, namespaced(ref.secret.Namespace, at.Child(ref.field, "namespace"))...)
		}
	}
	return errs
}

// namespaces checks the namespaces in a PersistentVolume's references to other objects. They have to be set, because
// a PersistentVolume has no namespace itself.
func namespaces(s *v1.PersistentVolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if d := s.Cinder; d != nil && d.SecretRef != nil {
		errs = append(errs, namespaced(d.SecretRef.Namespace, at.Child("cinder", "secretRef", "namespace"))...)
	}
	if d := s.StorageOS; d != nil && d.SecretRef != nil {
		errs = append(errs, namespaced(d.SecretRef.Namespace, at.Child("storageos", "secretRef", "namespace"))...)
	}
	if d := s.AzureFile; d != nil && d.SecretNamespace != nil {
		errs = append(errs, namespaced(*d.SecretNamespace, at.Child("azureFile", "secretNamespace"))...)
	}
	if d := s.Glusterfs; d != nil && d.EndpointsNamespace != nil {
		errs = append(errs, namespaced(*d.EndpointsNamespace, at.Child("glusterfs", "endpointsNamespace"))...)
	}
	return errs
}

func namespaced(name string, at *field.Path) field.ErrorList {
	return Required(at, name, "must name the namespace, as a PersistentVolume is in none")
}
