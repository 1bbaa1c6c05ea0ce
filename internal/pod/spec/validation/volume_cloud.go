package validation

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// cloudSources checks the sources of volumes that are specific to one provider or product. Kubernetes has replaced
// most of them by CSI drivers or removed them, but still validates their fields.
func cloudSources(s *v1.VolumeSource, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	required := func(v string, path ...string) {
		errs = append(errs, Required(at.Child(path[0], path[1:]...), v, "must be given as the provider has it")...)
	}
	if d := s.GCEPersistentDisk; d != nil {
		required(d.PDName, "gcePersistentDisk", "pdName")
		errs = append(errs, Range(at.Child("gcePersistentDisk", "partition"), d.Partition, 0, 255)...)
	}
	if d := s.AWSElasticBlockStore; d != nil {
		required(d.VolumeID, "awsElasticBlockStore", "volumeID")
		errs = append(errs, Range(at.Child("awsElasticBlockStore", "partition"), d.Partition, 0, 255)...)
	}
	if d := s.Cinder; d != nil {
		required(d.VolumeID, "cinder", "volumeID")
		errs = append(errs, secretRef(d.SecretRef, at.Child("cinder", "secretRef"))...)
	}
	if d := s.AzureFile; d != nil {
		required(d.SecretName, "azureFile", "secretName")
		required(d.ShareName, "azureFile", "shareName")
	}
	if s.AzureDisk != nil {
		errs = append(errs, azureDisk(s.AzureDisk, at.Child("azureDisk"))...)
	}
	if d := s.VsphereVolume; d != nil {
		required(d.VolumePath, "vsphereVolume", "volumePath")
	}
	if d := s.PhotonPersistentDisk; d != nil {
		required(d.PdID, "photonPersistentDisk", "pdID")
	}
	if d := s.PortworxVolume; d != nil {
		required(d.VolumeID, "portworxVolume", "volumeID")
	}
	if d := s.ScaleIO; d != nil {
		required(d.Gateway, "scaleIO", "gateway")
		required(d.System, "scaleIO", "system")
		required(d.VolumeName, "scaleIO", "volumeName")
	}
	if d := s.StorageOS; d != nil {
		path := at.Child("storageos")
		errs = append(errs, Label(path.Child("volumeName"), d.VolumeName)...)
		if d.VolumeNamespace != "" {
			errs = append(errs, Label(path.Child("volumeNamespace"), d.VolumeNamespace)...)
		}
		errs = append(errs, secretRef(d.SecretRef, path.Child("secretRef"))...)
	}
	return errs
}

func azureDisk(d *v1.AzureDiskVolumeSource, at *field.Path) field.ErrorList {
	errs := Required(at.Child("diskName"), d.DiskName, "must name a disk")
	errs = append(errs, Required(at.Child("diskURI"), d.DataDiskURI, "must be the URI of the disk")...)
	errs = append(errs, OptionalOneOf(at.Child("cachingMode"), d.CachingMode, v1.AzureDataDiskCachingNone,
		v1.AzureDataDiskCachingReadOnly, v1.AzureDataDiskCachingReadWrite)...)
	errs = append(errs, OptionalOneOf(at.Child("kind"), d.Kind, v1.AzureSharedBlobDisk, v1.AzureDedicatedBlobDisk,
		v1.AzureManagedDisk)...)
	if d.Kind == nil || d.DataDiskURI == "" {
		return errs
	}
	prefix := "https://"
	if *d.Kind == v1.AzureManagedDisk {
		prefix = "/subscriptions/"
	}
	if !strings.HasPrefix(strings.ToLower(d.DataDiskURI), prefix) {
		errs = append(errs, field.Invalid(at.Child("diskURI"), d.DataDiskURI,
			"must begin with "+prefix+" for a disk of this kind"))
	}
	return errs
}
