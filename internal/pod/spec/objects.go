package spec

import (
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

// SetObjectDefaults fills in missing fields of an object, in place. This includes the namespace, if the object's
// kind has one. It is idempotent and accepts any object of object.Kinds, valid or not.
func SetObjectDefaults(o object.Object) {
	if object.KindOf(o).Namespaced() && o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	switch o := o.(type) {
	case *v1.Secret:
		secretDefaults(o)
	case *v1.Service:
		serviceDefaults(&o.Spec)
	case *v1.PersistentVolume:
		persistentVolumeDefaults(&o.Spec)
	case *v1.PersistentVolumeClaim:
		claimDefaults(&o.Spec)
	case *storagev1.CSIDriver:
		csiDriverDefaults(&o.Spec)
	}
}

// ValidateObject checks an object after SetObjectDefaults. It returns all errors, with the field paths of the
// manifest. It doesn't change the object.
func ValidateObject(o object.Object) field.ErrorList {
	kind := object.KindOf(o)
	name := apivalidation.NameIsDNSSubdomain
	if kind == object.Service {
		name = apivalidation.NameIsDNSLabel // KEP-5311, on by default since 1.36
	}
	errs := explained(apivalidation.ValidateObjectMetaAccessor(o, kind.Namespaced(), name, field.NewPath("metadata")))
	switch o := o.(type) {
	case *v1.ConfigMap:
		errs = append(errs, configMap(o)...)
	case *v1.Secret:
		errs = append(errs, secret(o)...)
	case *v1.Service:
		errs = append(errs, service(&o.Spec, field.NewPath("spec"))...)
	case *v1.PersistentVolume:
		errs = append(errs, persistentVolume(&o.Spec, field.NewPath("spec"))...)
	case *v1.PersistentVolumeClaim:
		errs = append(errs, validation.ClaimSpec(&o.Spec, field.NewPath("spec"))...)
	case *nodev1.RuntimeClass:
		errs = append(errs, runtimeClass(o)...)
	case *storagev1.CSIDriver:
		errs = append(errs, csiDriver(o)...)
	}
	return errs
}

// Frozen returns an error for each change from old to new that an edit of a manifest may not make: an immutable
// ConfigMap or Secret keeps its data, and stays immutable. old has all defaults. Other edits that an API server refuses
// (of a Secret's type, of a RuntimeClass' handler, of a CSIDriver's volumeLifecycleModes, of a PersistentVolumeClaim's
// request or the location of a PersistentVolume's data) are allowed, because the author of the manifest makes them. A
// bound claim stays bound to its volume, even if the manifest of the claim or of the volume is edited: see
// internal/volume/binder.
func Frozen(old, new object.Object) field.ErrorList {
	switch old := old.(type) {
	case *v1.ConfigMap:
		if new, ok := new.(*v1.ConfigMap); ok {
			return frozenConfigMap(old, new)
		}
	case *v1.Secret:
		if new, ok := new.(*v1.Secret); ok {
			return frozenSecret(old, new)
		}
	}
	return nil
}
