package spec

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

// persistentVolume checks a PersistentVolume. It accepts all types of the API: a type that this build can't mount is
// reported when a pod uses the volume. It also accepts the reclaim policies Delete and Recycle, which manifests of
// local volumes often have. Nothing on this node deletes the data; an event of the pod that uses the volume says so.
func persistentVolume(s *v1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	errs := capacity(s.Capacity, at.Child("capacity"))
	errs = append(errs, validation.AccessModes(s.AccessModes, at.Child("accessModes"))...)
	errs = append(errs, validation.PersistentSource(&s.PersistentVolumeSource, at)...)
	errs = append(errs, claimRef(s.ClaimRef, at.Child("claimRef"))...)
	errs = append(errs, validation.OptionalSubdomain(at.Child("storageClassName"), s.StorageClassName)...)
	errs = append(errs, validation.OptionalOneOf(at.Child("volumeMode"), s.VolumeMode, v1.PersistentVolumeBlock,
		v1.PersistentVolumeFilesystem)...)
	errs = append(errs, reclaim(s, at.Child("persistentVolumeReclaimPolicy"))...)
	errs = append(errs, nodes(s, at.Child("nodeAffinity"))...)
	return append(errs, attributes(s, at.Child("volumeAttributesClassName"))...)
}

// capacity checks the size of a volume: storage has to be the only resource in it.
func capacity(c v1.ResourceList, at *field.Path) field.ErrorList {
	storage := at.Key(string(v1.ResourceStorage))
	var errs field.ErrorList
	if size, there := c[v1.ResourceStorage]; !there {
		errs = append(errs, field.Required(storage, "must be the size of the volume, such as \"1Gi\""))
	} else if size.Sign() <= 0 {
		errs = append(errs, field.Invalid(storage, size.String(), "must be greater than zero"))
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if name != v1.ResourceStorage {
			errs = append(errs, field.NotSupported(at.Key(string(name)), name, []v1.ResourceName{v1.ResourceStorage}))
		}
	}
	return errs
}

// claimRef checks the reference to the claim for which a volume is reserved.
func claimRef(r *v1.ObjectReference, at *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	if r.Kind != "" {
		errs = append(errs, validation.OneOf(at.Child("kind"), r.Kind, "PersistentVolumeClaim")...)
	}
	errs = append(errs, validation.Label(at.Child("namespace"), r.Namespace)...)
	return append(errs, validation.Subdomain(at.Child("name"), r.Name)...)
}

func reclaim(s *v1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	errs := validation.OneOf(at, s.PersistentVolumeReclaimPolicy, v1.PersistentVolumeReclaimRetain,
		v1.PersistentVolumeReclaimDelete, v1.PersistentVolumeReclaimRecycle)
	if s.PersistentVolumeReclaimPolicy == v1.PersistentVolumeReclaimRecycle && s.HostPath != nil &&
		s.HostPath.Path == "/" {
		errs = append(errs, field.Forbidden(at, "may not be Recycle for a hostPath volume of /"))
	}
	return errs
}

// nodes checks the node affinity of a volume. A local volume needs one.
func nodes(s *v1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	required := at.Child("required")
	switch {
	case s.NodeAffinity != nil && s.NodeAffinity.Required != nil:
		return nodeSelector(s.NodeAffinity.Required, required)
	case s.Local != nil:
		return field.ErrorList{field.Required(required,
			"must say on which node a local volume is, such as by the label kubernetes.io/hostname")}
	case s.NodeAffinity != nil:
		return field.ErrorList{field.Required(required, "must say which nodes are meant")}
	}
	return nil
}

func attributes(s *v1.PersistentVolumeSpec, at *field.Path) field.ErrorList {
	if s.VolumeAttributesClassName == nil {
		return nil
	}
	errs := validation.Subdomain(at, *s.VolumeAttributesClassName)
	if s.CSI == nil {
		errs = append(errs, field.Forbidden(at, "may only be set for a csi volume"))
	}
	return errs
}
