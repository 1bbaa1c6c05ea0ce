// Package object holds the objects that pods refer to by name: ConfigMaps, Secrets, Services, ServiceAccounts,
// RuntimeClasses, PersistentVolumeClaims, PersistentVolumes, CSIDrivers and VolumeAttachments.
//
// A Finder returns the View of each pod. Code that acts for a pod gets the pod's View, and has no other access to
// objects. Local is the Finder for objects from manifests; a Set has all of these objects at one time and is
// immutable.
//
// A Secret's values leave this package only in the object itself. Therefore Desired hides the object: printing or
// encoding a Desired shows only the object's name.
package object

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// Kind is the name of a kind of objects, as in the API: "ConfigMap".
type Kind string

// The kinds of objects, other than pods, that manifests may hold.
const (
	ConfigMap             Kind = "ConfigMap"
	Secret                Kind = "Secret"
	Service               Kind = "Service"
	ServiceAccount        Kind = "ServiceAccount"
	PersistentVolume      Kind = "PersistentVolume"
	PersistentVolumeClaim Kind = "PersistentVolumeClaim"
	RuntimeClass          Kind = "RuntimeClass"
	CSIDriver             Kind = "CSIDriver"
)

// VolumeAttachment is a kind that only an API server has: the attachment of a volume to a node.
const VolumeAttachment Kind = "VolumeAttachment"

// Kinds returns all kinds that manifests may hold, in the order in which messages list them.
func Kinds() []Kind {
	return []Kind{ConfigMap, Secret, Service, ServiceAccount, PersistentVolume, PersistentVolumeClaim, RuntimeClass,
		CSIDriver}
}

// APIVersion returns the kind's apiVersion in manifests, such as "v1".
func (k Kind) APIVersion() string {
	switch k {
	case RuntimeClass:
		return nodev1.SchemeGroupVersion.String()
	case CSIDriver, VolumeAttachment:
		return storagev1.SchemeGroupVersion.String()
	default:
		return v1.SchemeGroupVersion.String()
	}
}

// GroupVersionKind returns the kind with its group and version, in the type of k8s.io/apimachinery.
func (k Kind) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(k.APIVersion(), string(k))
}

// Namespaced reports whether objects of this kind are in a namespace.
func (k Kind) Namespaced() bool {
	return k != RuntimeClass && k != PersistentVolume && k != CSIDriver && k != VolumeAttachment
}

// New returns an empty object of this kind; nil if the kind is unknown.
func (k Kind) New() Object {
	switch k {
	case ConfigMap:
		return &v1.ConfigMap{}
	case Secret:
		return &v1.Secret{}
	case Service:
		return &v1.Service{}
	case ServiceAccount:
		return &v1.ServiceAccount{}
	case PersistentVolume:
		return &v1.PersistentVolume{}
	case PersistentVolumeClaim:
		return &v1.PersistentVolumeClaim{}
	case RuntimeClass:
		return &nodev1.RuntimeClass{}
	case CSIDriver:
		return &storagev1.CSIDriver{}
	case VolumeAttachment:
		return &storagev1.VolumeAttachment{}
	default:
		return nil
	}
}

// Known reports whether the kind is one of Kinds.
func (k Kind) Known() bool { return slices.Contains(Kinds(), k) }

// resource returns the kind's name in messages of an API server, such as "configmap".
func (k Kind) resource() string { return strings.ToLower(string(k)) }

// KindOf returns the kind of an object; "" if it is unknown.
func KindOf(o Object) Kind {
	switch o.(type) {
	case *v1.ConfigMap:
		return ConfigMap
	case *v1.Secret:
		return Secret
	case *v1.Service:
		return Service
	case *v1.ServiceAccount:
		return ServiceAccount
	case *v1.PersistentVolume:
		return PersistentVolume
	case *v1.PersistentVolumeClaim:
		return PersistentVolumeClaim
	case *nodev1.RuntimeClass:
		return RuntimeClass
	case *storagev1.CSIDriver:
		return CSIDriver
	case *storagev1.VolumeAttachment:
		return VolumeAttachment
	default:
		return ""
	}
}

// Object is an API object with metadata.
type Object interface {
	metav1.Object
	runtime.Object
}

// Key identifies one object.
type Key struct {
	Kind Kind
	// Namespace is empty for kinds without namespaces.
	Namespace, Name string
}

// Object converts the key to a pod.Object, the type in waits.
func (k Key) Object() pod.Object {
	return pod.Object{Kind: string(k.Kind), Namespace: k.Namespace, Name: k.Name}
}

// String returns the key as text for people: "ConfigMap default/app", "RuntimeClass kata".
func (k Key) String() string {
	if k.Namespace == "" {
		return string(k.Kind) + " " + k.Name
	}
	return string(k.Kind) + " " + k.Namespace + "/" + k.Name
}
