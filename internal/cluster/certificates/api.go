package certificates

import (
	"context"

	certificates "k8s.io/api/certificates/v1"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
)

// RequestsOf returns the certificate signing requests at the client's API server.
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

func (r requests) Watch(ctx context.Context, name string, onChange func(*certificates.CertificateSigningRequest)) {
	r.client.Watch(ctx, apiclient.CertificateSigningRequests, "", apiclient.Selectors{Fields: "metadata.name=" + name},
		apiclient.Single[*certificates.CertificateSigningRequest](onChange))
}
