package spec

import (
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/pod/spec/validation"
)

// SetObjectDefaults fills in what an object leaves out, in place: its namespace too, where
// its kind has one. It is idempotent and takes any object of object.Kinds, valid or not.
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
	}
}

// ValidateObject checks an object that has been through SetObjectDefaults. It returns everything
// that is wrong, at the field paths of the manifest. The object isn't changed.
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
	}
	return errs
}

// Frozen returns what stands in the way of making old, which is complete, become
// new: an immutable ConfigMap or Secret keeps its data, and stays immutable. Other edits
// that an API server refuses (of a Secret's type, of a RuntimeClass' handler, of what a
// PersistentVolumeClaim asks for or where a PersistentVolume's data are) aren't in the way:
// there is nobody but the manifest's author whom they could surprise. A claim that is bound
// stays with its volume whatever becomes of either's manifest: see internal/volume/binder.
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
