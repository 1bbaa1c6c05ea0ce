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

// ServingConfig says how the node shows who it is to those who ask it.
type ServingConfig struct {
	// Node is the node's name.
	Node string
	// Dir is the directory of certificates (--cert-dir).
	Dir string
	// Addresses are those that the API server has of the node. Who approves requests compares them.
	Addresses func() []v1.NodeAddress
	Requests  Requests
	// Changed receives when the addresses have changed.
	Changed <-chan struct{}
	Meter   Meter
	// Troubled is called when Problem has changed.
	Troubled func()
	Log      logr.Logger
}

// Serving keeps the certificate of the HTTPS server valid, for all addresses of the node.
type Serving struct {
	*Renewer
	conf  ServingConfig
	shown atomic.Pointer[tls.Certificate]
}

// NewServing returns what keeps the certificate valid.
func NewServing(c ServingConfig) *Serving {
	s := &Serving{conf: c}
	s.Renewer = New(Config{
		Signer: certificates.KubeletServingSignerName, Usage: certificates.UsageServerAuth, Dir: c.Dir,
		Name:   "kubelet-server",
		Wanted: s.wanted, Current: s.current, Changed: c.Changed, Meter: c.Meter, Troubled: c.Troubled, Log: c.Log,
		Ask: func(ctx context.Context, do func(context.Context, Requests) error) error { return do(ctx, c.Requests) },
	})
	return s
}

// Certificate is what clients are shown, nil if there is none yet.
func (s *Serving) Certificate() *tls.Certificate { return s.shown.Load() }

func (s *Serving) current() (*tls.Certificate, error) {
	cert, err := s.files.load()
	if err == nil {
		s.shown.Store(cert)
	}
	return cert, err
}

// wanted has the names and addresses of the node; it is nil as long as none are known.
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
