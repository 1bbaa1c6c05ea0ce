package apiclient

import (
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"
	certificates "k8s.io/api/certificates/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Resource is a kind of objects that a node works with.
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
	resources
)

// described is how the API server knows a resource.
type described struct {
	version schema.GroupVersion
	path    string
	plural  string
	list    func() runtime.Object
}

func (r Resource) described() described {
	core := func(plural string, list func() runtime.Object) described {
		return described{v1.SchemeGroupVersion, "/api/v1", plural, list}
	}
	switch r {
	case Pods:
		return core("pods", func() runtime.Object { return &v1.PodList{} })
	case ConfigMaps:
		return core("configmaps", func() runtime.Object { return &v1.ConfigMapList{} })
	case Secrets:
		return core("secrets", func() runtime.Object { return &v1.SecretList{} })
	case Services:
		return core("services", func() runtime.Object { return &v1.ServiceList{} })
	case ServiceAccounts:
		return core("serviceaccounts", func() runtime.Object { return &v1.ServiceAccountList{} })
	case PersistentVolumes:
		return core("persistentvolumes", func() runtime.Object { return &v1.PersistentVolumeList{} })
	case PersistentVolumeClaims:
		return core("persistentvolumeclaims", func() runtime.Object { return &v1.PersistentVolumeClaimList{} })
	case RuntimeClasses:
		return described{nodev1.SchemeGroupVersion, "/apis/node.k8s.io/v1", "runtimeclasses", func() runtime.Object { return &nodev1.RuntimeClassList{} }}
	case CertificateSigningRequests:
		return described{certificates.SchemeGroupVersion, "/apis/certificates.k8s.io/v1", "certificatesigningrequests", func() runtime.Object { return &certificates.CertificateSigningRequestList{} }}
	case Leases:
		return described{coordination.SchemeGroupVersion, "/apis/coordination.k8s.io/v1", "leases", func() runtime.Object { return &coordination.LeaseList{} }}
	case EventRecords:
		return core("events", func() runtime.Object { return &v1.EventList{} })
	case TokenReviews: // can't be listed, nor can the next
		return described{authentication.SchemeGroupVersion, "/apis/authentication.k8s.io/v1", "tokenreviews", nil}
	case SubjectAccessReviews:
		return described{authorization.SchemeGroupVersion, "/apis/authorization.k8s.io/v1", "subjectaccessreviews", nil}
	default:
		return core("nodes", func() runtime.Object { return &v1.NodeList{} })
	}
}

// String is the name that the API has for it.
func (r Resource) String() string { return r.described().plural }

// newCodecs makes what reads and writes the objects of the resources. A generated clientset would do so for all of
// Kubernetes' groups, and hold twice the memory.
func newCodecs() (serializer.CodecFactory, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, nodev1.AddToScheme, coordination.AddToScheme, authentication.AddToScheme, authorization.AddToScheme, certificates.AddToScheme} {
		if err := add(scheme); err != nil {
			return serializer.CodecFactory{}, err
		}
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return serializer.NewCodecFactory(scheme), nil
}
