package certificates

import (
	"context"

	certificates "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
)

// RequestsOf are the certificate signing requests of the API server that a client talks to.
func RequestsOf(c *apiclient.Client) Requests { return requests{c} }

type requests struct{ client *apiclient.Client }

func (r requests) Create(ctx context.Context, request *certificates.CertificateSigningRequest) error {
	return r.client.Create(ctx, apiclient.Calls, apiclient.CertificateSigningRequests, "", request, nil)
}

func (r requests) Get(ctx context.Context, name string) (*certificates.CertificateSigningRequest, error) {
	var there certificates.CertificateSigningRequest
	if err := r.client.Get(ctx, apiclient.Calls, apiclient.CertificateSigningRequests, "", name, &there); err != nil {
		return nil, err
	}
	return &there, nil
}

func (r requests) Watch(ctx context.Context, name string, tell func(*certificates.CertificateSigningRequest)) {
	r.client.Watch(ctx, apiclient.CertificateSigningRequests, "", apiclient.Selectors{Fields: "metadata.name=" + name}, sight(tell))
}

// sight tells the states of a watch that chooses one object.
type sight func(*certificates.CertificateSigningRequest)

func (s sight) Listed(all []runtime.Object, _ string) {
	if len(all) == 0 {
		s(nil)
	}
	for _, o := range all {
		s.Changed(watch.Modified, o)
	}
}

func (s sight) Changed(kind watch.EventType, o runtime.Object) {
	request, ok := o.(*certificates.CertificateSigningRequest)
	if kind == watch.Deleted || !ok {
		request = nil
	}
	s(request)
}

// Away does nothing: it is tried again.
func (s sight) Away(error) {}
