package volume

import (
	"fmt"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	csitranslation "k8s.io/csi-translation-lib"
)

// Migrate returns the spec of the CSI volume that replaces a volume of a cloud provider's kind, such as
// awsElasticBlockStore (KEP-625), in a pod in this namespace. All other specs are returned as they are.
func (s Spec) Migrate(namespace string) (Spec, error) {
	lib := csitranslation.New()
	owner, pv, err := "", s.Persistent, error(nil)
	switch {
	case pv != nil && lib.IsPVMigratable(pv):
		owner = fmt.Sprintf("PersistentVolume %s: ", pv.Name)
		pv, err = lib.TranslateInTreePVToCSI(logr.Discard(), pv)
	case pv == nil && lib.IsInlineMigratable(s.Volume):
		pv, err = inline(lib, s.Volume, namespace)
	default:
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("%sCSI drivers have replaced the kind %s, and this volume can't be translated: %w; "+
			"correct it, or use a volume of the kind csi", owner, s.Kind(), err)
	}
	s.Persistent, s.Migrated = pv, true
	return s, nil
}

// inline returns the PersistentVolume for a volume in a pod's spec.
func inline(lib csitranslation.CSITranslator, v *v1.Volume, namespace string) (*v1.PersistentVolume, error) {
	d := v.VsphereVolume
	if d == nil || d.StoragePolicyName == "" {
		return lib.TranslateInTreeInlineVolumeToCSI(logr.Discard(), v, namespace)
	}
	// The library (v0.36.3) panics if this field of an inline volume is set. So the field is cleared, and its value is
	// added under the key that the library uses for PersistentVolumes.
	v = v.DeepCopy()
	v.VsphereVolume.StoragePolicyName = ""
	pv, err := lib.TranslateInTreeInlineVolumeToCSI(logr.Discard(), v, namespace)
	if err == nil {
		pv.Spec.CSI.VolumeAttributes["storagepolicyname"] = d.StoragePolicyName
	}
	return pv, err
}
