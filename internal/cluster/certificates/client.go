package certificates

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	certificates "k8s.io/api/certificates/v1"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// clientName is the prefix of the client certificate's file names.
const clientName = "kubelet-client"

// ClientFile is the path, in a certificate directory, of the client certificate that the cluster has issued.
func ClientFile(dir string) string { return files{dir, clientName}.current() }

// ClientConfig configures the client certificate with which the node authenticates to the API server.
type ClientConfig struct {
	// Node is the node's name.
	Node string
	// Dir is the directory with the node's certificates (--cert-dir).
	Dir string
	// Kubeconfig is the path of the client's kubeconfig, Bootstrap that of a kubeconfig with bootstrap credentials;
	// empty if there is none. If Kubeconfig can't be used, a certificate is requested with Bootstrap, and Kubeconfig
	// is written again.
	Kubeconfig, Bootstrap string
	// Rotate says that the certificate is renewed before it expires.
	Rotate bool
	// Requests use the node's credentials. AsBootstrap calls the function do with requests that use the credentials of
	// Bootstrap.
	Requests    Requests
	AsBootstrap func(ctx context.Context, do func(context.Context, Requests) error) error
	// Refused reports that the API server doesn't accept the node's credentials.
	Refused func() bool
	Changed <-chan struct{}
	Meter   Meter
	// Troubled is called when the result of Renewer.Problem has changed.
	Troubled func()
	// Expires is called with a message once for each certificate that ends soon and couldn't be renewed.
	Expires func(message string)
	Log     logr.Logger
}

// NewClient returns a Renewer of the client certificate.
func NewClient(c ClientConfig) *Renewer {
	wanted, no := &x509.CertificateRequest{Subject: subject(c.Node)}, &rejected{by: c.Refused}
	if !c.Rotate && c.Bootstrap == "" {
		wanted = nil
	}
	return New(Config{
		Signer: certificates.KubeAPIServerClientKubeletSignerName, Usage: certificates.UsageClientAuth, Dir: c.Dir,
		Name: clientName, Keep: !c.Rotate, Final: c.final,
		Wanted:  func() *x509.CertificateRequest { return wanted },
		Current: func() (*tls.Certificate, error) { return c.current(no) },
		Ask: func(ctx context.Context, do func(context.Context, Requests) error) error {
			return c.ask(ctx, no, do)
		},
		Changed: c.Changed, Meter: c.Meter, Troubled: c.Troubled, Expires: c.Expires, Log: c.Log,
	})
}

// final returns the path of the file that names the client certificate, and the reason why no certificate follows when
// this one expires. The reason is empty if a new certificate will be requested with Bootstrap.
func (c *ClientConfig) final() (file, why string) {
	if c.Bootstrap != "" && !gone(c.Bootstrap) {
		return c.Kubeconfig, ""
	}
	return c.Kubeconfig, "rotateCertificates is false, and there is no bootstrap kubeconfig: replace the " +
		"certificate, or set rotateCertificates to true and restart the agent"
}

func subject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// rejected stores the certificate that was in use when the API server began to reject the node's credentials: by the
// server's clock, that certificate has expired.
type rejected struct {
	by func() bool

	mu   sync.Mutex
	cert []byte
}

// is reports whether cert is the rejected certificate. When a rejection begins, it stores cert.
func (r *rejected) is(cert *tls.Certificate) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch now := r.by(); {
	case !now:
		r.cert = nil
	case r.cert == nil:
		r.cert = cert.Leaf.Raw
	}
	return bytes.Equal(r.cert, cert.Leaf.Raw)
}

// current is the client certificate. It is nil if the kubeconfig has other credentials. It is also nil if the
// kubeconfig is invalid and there is no Bootstrap, because then a person has to correct the kubeconfig. A certificate
// that the API server rejects is an error if another one can be requested with Bootstrap.
func (c *ClientConfig) current(r *rejected) (*tls.Certificate, error) {
	rotated := ""
	if c.Rotate {
		rotated = ClientFile(c.Dir)
	}
	cert, err := apiclient.ClientCertificate(c.Kubeconfig, rotated)
	if err != nil && c.Bootstrap == "" {
		return nil, nil
	}
	if err == nil && cert != nil && c.Bootstrap != "" && r.is(cert) && !gone(c.Bootstrap) {
		return nil, errors.New("the API server doesn't accept the client certificate, as if it had ended by the " +
			"clock there")
	}
	return cert, err
}

// ask calls the function do with requests that use the node's credentials. If the node has no usable credentials, the
// requests use Bootstrap's, and ask writes Kubeconfig.
func (c *ClientConfig) ask(ctx context.Context, r *rejected, do func(context.Context, Requests) error) error {
	cert, err := c.current(r)
	switch {
	case err != nil: // Bootstrap isn't empty then
	case c.Bootstrap == "" || time.Now().Before(cert.Leaf.NotAfter) || gone(c.Bootstrap):
		return do(ctx, c.Requests)
	}
	// Read it now: Bootstrap may be removed before the request is answered.
	text, err := apiclient.IssuedKubeconfig(c.Bootstrap, ClientFile(c.Dir))
	if err != nil {
		return err
	}
	// An agent that was killed may have obtained the certificate already, with a token that isn't valid any more.
	if stored, err := (files{c.Dir, clientName}).load(); err != nil ||
		stored.Leaf.Subject.CommonName != subject(c.Node).CommonName || time.Now().After(stored.Leaf.NotAfter) ||
		r.is(stored) {
		if err := c.AsBootstrap(ctx, do); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(c.Kubeconfig), 0o755); err != nil {
		return fmt.Errorf("kubeconfig %s: %w", c.Kubeconfig, err)
	}
	return atomicfile.Write(c.Kubeconfig, text, 0o600)
}

func gone(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}
