package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
	"sync/atomic"

	"github.com/go-logr/logr"
	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
)

// ServingConfig configures the certificate that the HTTPS server presents to clients.
type ServingConfig struct {
	// Node is the node's name.
	Node string
	// Dir is the directory with the node's certificates (--cert-dir).
	Dir string
	// Addresses are the addresses in the node's object. The approver of a signing request compares them with the
	// request.
	Addresses func() []v1.NodeAddress
	Requests  Requests
	// Changed receives when the addresses have changed.
	Changed <-chan struct{}
	Meter   Meter
	// Troubled is called when the result of Renewer.Problem has changed.
	Troubled func()
	// Expires is called with a message once for each certificate that ends soon and couldn't be renewed.
	Expires func(message string)
	Log     logr.Logger
}

// Serving keeps the certificate of the HTTPS server valid, for all addresses of the node.
type Serving struct {
	*Renewer
	conf  ServingConfig
	shown atomic.Pointer[tls.Certificate]
}

// NewServing returns a Serving. It does nothing before Run.
func NewServing(c ServingConfig) *Serving {
	s := &Serving{conf: c}
	s.Renewer = New(Config{
		Signer: certificates.KubeletServingSignerName, Usage: certificates.UsageServerAuth, Dir: c.Dir,
		Name:   "kubelet-server",
		Wanted: s.wanted, Current: s.current, Changed: c.Changed, Meter: c.Meter, Troubled: c.Troubled,
		Expires: c.Expires, Log: c.Log,
		Ask: func(ctx context.Context, do func(context.Context, Requests) error) error { return do(ctx, c.Requests) },
	})
	return s
}

// Certificate is the certificate to present to clients; nil if there is none yet.
func (s *Serving) Certificate() *tls.Certificate { return s.shown.Load() }

func (s *Serving) current() (*tls.Certificate, error) {
	cert, err := s.files.load()
	if err == nil {
		s.shown.Store(cert)
	}
	return cert, err
}

// wanted is a request with the node's names and addresses; nil while the node has none.
func (s *Serving) wanted() *x509.CertificateRequest {
	r := &x509.CertificateRequest{Subject: subject(s.conf.Node)}
	for _, a := range s.conf.Addresses() {
		if ip := net.ParseIP(a.Address); ip != nil {
			r.IPAddresses = append(r.IPAddresses, ip)
		} else {
			r.DNSNames = append(r.DNSNames, a.Address)
		}
	}
	if len(r.DNSNames)+len(r.IPAddresses) == 0 {
		return nil
	}
	slices.Sort(r.DNSNames)
	r.DNSNames = slices.Compact(r.DNSNames)
	slices.SortFunc(r.IPAddresses, func(a, b net.IP) int { return slices.Compare(a, b) })
	r.IPAddresses = slices.CompactFunc(r.IPAddresses, net.IP.Equal)
	return r
}
