package validation

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// MaxCSIDriverName is the maximum length of a CSI driver's name (CSI specification).
const MaxCSIDriverName = 63

// claimSources checks the sources of volumes that a storage driver of the cluster provides, such as claims.
func claimSources(v *v1.Volume, podName string, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s := v.PersistentVolumeClaim; s != nil {
		errs = append(errs, Required(at.Child("persistentVolumeClaim", "claimName"), s.ClaimName,
			"must name a PersistentVolumeClaim")...)
	}
	if s := v.CSI; s != nil {
		path := at.Child("csi")
		errs = append(errs, CSIDriverName(s.Driver, path.Child("driver"))...)
		errs = append(errs, secretRef(s.NodePublishSecretRef, path.Child("nodePublishSecretRef"))...)
	}
	if s := v.Ephemeral; s != nil {
		path := at.Child("ephemeral")
		if s.VolumeClaimTemplate == nil {
			errs = append(errs, field.Required(path.Child("volumeClaimTemplate"), "must describe the claim to make"))
		} else {
			errs = append(errs, template(s.VolumeClaimTemplate, path.Child("volumeClaimTemplate"))...)
		}
		// The claim's name consists of the names of the pod and the volume.
		if podName != "" && v.Name != "" {
			claim := podName + "-" + v.Name
			for _, m := range validation.IsDNS1123Subdomain(claim) {
				errs = append(errs, field.Invalid(at.Child("name"), v.Name, "PVC name \""+claim+"\": "+m))
			}
		}
	}
	return errs
}

// CSIDriverName checks the name of a CSI driver.
func CSIDriverName(name string, at *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(at, "must name a CSI driver, such as \"csi.example.com\"")}
	}
	if len(name) > MaxCSIDriverName {
		return field.ErrorList{field.TooLong(at, name, MaxCSIDriverName)}
	}
	return Invalid(at, name, validation.IsDNS1123Subdomain(strings.ToLower(name)))
}

// secretRef checks that a reference to a Secret, if it is set, has a name.
func secretRef(r *v1.LocalObjectReference, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	return Required(at.Child("name"), r.Name, "must name a Secret")
}

// template checks the claim template of an ephemeral volume (KEP-1698).
func template(t *v1.PersistentVolumeClaimTemplate, at *field.Path) field.ErrorList {
	meta := t.ObjectMeta.DeepCopy()
	errs := metavalidation.ValidateLabels(meta.Labels, at.Child("metadata", "labels"))
	meta.Labels, meta.Annotations = nil, nil
	if meta.Name != "" || meta.Namespace != "" || meta.GenerateName != "" || len(meta.OwnerReferences) > 0 ||
		len(meta.Finalizers) > 0 {
		errs = append(errs, field.Forbidden(at.Child("metadata"), "only labels and annotations may be set"))
	}
	return append(errs, ClaimSpec(&t.Spec, at.Child("spec"))...)
}

// AccessModes checks the access modes of a claim or of a PersistentVolume.
func AccessModes(modes []v1.PersistentVolumeAccessMode, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if len(modes) == 0 {
		errs = append(errs, field.Required(at, "at least 1 access mode is required"))
	}
	for i, m := range modes {
		errs = append(errs, OneOf(at.Index(i), m, v1.ReadWriteOnce, v1.ReadOnlyMany, v1.ReadWriteMany,
			v1.ReadWriteOncePod)...)
	}
	if len(modes) > 1 && slices.Contains(modes, v1.ReadWriteOncePod) {
		errs = append(errs, field.Forbidden(at, "may not use ReadWriteOncePod with other access modes"))
	}
	return errs
}

// ClaimSpec checks the spec of a PersistentVolumeClaim, including the claim of an ephemeral volume.
func ClaimSpec(s *v1.PersistentVolumeClaimSpec, at *field.Path) field.ErrorList {
	errs := AccessModes(s.AccessModes, at.Child("accessModes"))
	storage := at.Child("resources", "requests").Key(string(v1.ResourceStorage))
	if q, ok := s.Resources.Requests[v1.ResourceStorage]; !ok {
		errs = append(errs, field.Required(storage, "must be the size of the volume, such as \"1Gi\""))
	} else if q.Sign() <= 0 {
		errs = append(errs, field.Invalid(storage, q.String(), "must be greater than zero"))
	}
	if s.StorageClassName != nil {
		errs = append(errs, OptionalSubdomain(at.Child("storageClassName"), *s.StorageClassName)...)
	}
	if s.VolumeAttributesClassName != nil {
		errs = append(errs, OptionalSubdomain(at.Child("volumeAttributesClassName"), *s.VolumeAttributesClassName)...)
	}
	errs = append(errs, OptionalOneOf(at.Child("volumeMode"), s.VolumeMode, v1.PersistentVolumeBlock,
		v1.PersistentVolumeFilesystem)...)
	if s.DataSource != nil {
		errs = append(errs, dataSource(s.DataSource.Kind, s.DataSource.Name, s.DataSource.APIGroup,
			at.Child("dataSource"))...)
	}
	if s.DataSourceRef != nil {
		errs = append(errs, dataSource(s.DataSourceRef.Kind, s.DataSourceRef.Name, s.DataSourceRef.APIGroup,
			at.Child("dataSourceRef"))...)
	}
	return append(errs, metavalidation.ValidateLabelSelector(s.Selector,
		metavalidation.LabelSelectorValidationOptions{}, at.Child("selector"))...)
}

// dataSource checks the data source of a claim. It is another claim, or an object of another API group.
func dataSource(kind, name string, group *string, at *field.Path) field.ErrorList {
	errs := Required(at.Child("name"), name, "must name an object")
	errs = append(errs, Required(at.Child("kind"), kind, "must be a kind, such as \"VolumeSnapshot\"")...)
	if (group == nil || *group == "") && kind != "" && kind != "PersistentVolumeClaim" {
		errs = append(errs, field.Invalid(at, kind,
			"must be 'PersistentVolumeClaim' when referencing the default apiGroup"))
	}
	return errs
}
