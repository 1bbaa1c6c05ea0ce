package apiclient

import (
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Resource is a kind of object that the agent uses.
type Resource int

const (
	Nodes Resource = iota
	Pods
	Leases
	// EventRecords are v1 Events; the Class of their calls is Events.
	EventRecords
	TokenReviews
	SubjectAccessReviews
	ConfigMaps
	Secrets
	Services
	ServiceAccounts
	PersistentVolumes
	PersistentVolumeClaims
	RuntimeClasses
	CertificateSigningRequests
	CSINodes
	CSIDrivers
	VolumeAttachments
	resources
)

// described is a resource in the API server's terms.
type described struct {
	version schema.GroupVersion
	path    string
	plural  string
	// item is an empty object of the kind.
	item func() runtime.Object
}

func (r Resource) described() described {
	core := func(plural string, item func() runtime.Object) described {
		return described{v1.SchemeGroupVersion, "/api/v1", plural, item}
	}
	switch r {
	case Pods:
		return core("pods", func() runtime.Object { return &v1.Pod{} })
	case ConfigMaps:
		return core("configmaps", func() runtime.Object { return &v1.ConfigMap{} })
	case Secrets:
		return core("secrets", func() runtime.Object { return &v1.Secret{} })
	case Services:
		return core("services", func() runtime.Object { return &v1.Service{} })
	case ServiceAccounts:
		return core("serviceaccounts", func() runtime.Object { return &v1.ServiceAccount{} })
	case PersistentVolumes:
		return core("persistentvolumes", func() runtime.Object { return &v1.PersistentVolume{} })
	case PersistentVolumeClaims:
		return core("persistentvolumeclaims", func() runtime.Object { return &v1.PersistentVolumeClaim{} })
	case RuntimeClasses:
		return described{nodev1.SchemeGroupVersion, "/apis/node.k8s.io/v1", "runtimeclasses", func() runtime.Object {
			return &nodev1.RuntimeClass{}
		}}
	case CSINodes:
		return described{storage.SchemeGroupVersion, "/apis/storage.k8s.io/v1", "csinodes", func() runtime.Object {
			return &storage.CSINode{}
		}}
	case CSIDrivers:
		return described{storage.SchemeGroupVersion, "/apis/storage.k8s.io/v1", "csidrivers", func() runtime.Object {
			return &storage.CSIDriver{}
		}}
	case VolumeAttachments:
		return described{storage.SchemeGroupVersion, "/apis/storage.k8s.io/v1", "volumeattachments",
			func() runtime.Object { return &storage.VolumeAttachment{} }}
	case CertificateSigningRequests:
		return described{certificates.SchemeGroupVersion, "/apis/certificates.k8s.io/v1",
			"certificatesigningrequests", func() runtime.Object { return &certificates.CertificateSigningRequest{} }}
	case Leases:
		return described{coordination.SchemeGroupVersion, "/apis/coordination.k8s.io/v1",
			"leases", func() runtime.Object { return &coordination.Lease{} }}
	case EventRecords:
		return core("events", func() runtime.Object { return &v1.Event{} })
	case TokenReviews: // can't be listed, nor can SubjectAccessReviews
		return described{authentication.SchemeGroupVersion, "/apis/authentication.k8s.io/v1",
			"tokenreviews", func() runtime.Object { return &authentication.TokenReview{} }}
	case SubjectAccessReviews:
		return described{authorization.SchemeGroupVersion, "/apis/authorization.k8s.io/v1",
			"subjectaccessreviews", func() runtime.Object { return &authorization.SubjectAccessReview{} }}
	default:
		return core("nodes", func() runtime.Object { return &v1.Node{} })
	}
}

// String is the resource's plural name in the API.
func (r Resource) String() string { return r.described().plural }

// newCodecs returns codecs for the objects of the resources. A generated clientset would include the types of all API
// groups of Kubernetes, and use twice the memory.
func newCodecs() (serializer.CodecFactory, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, nodev1.AddToScheme, coordination.AddToScheme,
		authentication.AddToScheme, authorization.AddToScheme, certificates.AddToScheme,
		storage.AddToScheme} {
		if err := add(scheme); err != nil {
			return serializer.CodecFactory{}, err
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme), nil
}
