package certificates

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	certificates "k8s.io/api/certificates/v1"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// clientName is how the files of the client certificate begin.
const clientName = "kubelet-client"

// ClientFile is where in the directory of certificates a client certificate is that the cluster has issued.
func ClientFile(dir string) string { return files{dir, clientName}.current() }

// ClientConfig says how the node shows the API server who it is.
type ClientConfig struct {
	// Node is the node's name.
	Node string
	// Dir is the directory of certificates (--cert-dir).
	Dir string
	// Kubeconfig is written if it can't be used, by who can use Bootstrap, another kubeconfig; empty if there is none.
	Kubeconfig, Bootstrap string
	// Rotate says that the certificate is to be renewed before it has ended.
	Rotate bool
	// Requests are made as the node, those of AsBootstrap with Bootstrap.
	Requests    Requests
	AsBootstrap func(ctx context.Context, do func(context.Context, Requests) error) error
	Changed     <-chan struct{}
	Meter       Meter
	// Troubled is called when Problem has changed.
	Troubled func()
	Log      logr.Logger
}

// NewClient returns what keeps the client certificate valid.
func NewClient(c ClientConfig) *Renewer {
	wanted := &x509.CertificateRequest{Subject: subject(c.Node)}
	if !c.Rotate && c.Bootstrap == "" {
		wanted = nil
	}
	return New(Config{
		Signer: certificates.KubeAPIServerClientKubeletSignerName, Usage: certificates.UsageClientAuth, Dir: c.Dir, Name: clientName, Keep: !c.Rotate,
		Wanted:  func() *x509.CertificateRequest { return wanted },
		Current: c.current, Ask: c.ask, Changed: c.Changed, Meter: c.Meter, Troubled: c.Troubled, Log: c.Log,
	})
}

func subject(node string) pkix.Name {
	return pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}
}

// current is the client certificate. A kubeconfig with other credentials needs none, nor one that a person has to correct.
func (c *ClientConfig) current() (*tls.Certificate, error) {
	rotated := ""
	if c.Rotate {
		rotated = ClientFile(c.Dir)
	}
	cert, err := apiclient.ClientCertificate(c.Kubeconfig, rotated)
	if err != nil && c.Bootstrap == "" {
		return nil, nil
	}
	return cert, err
}

// ask asks as the node, or with the other kubeconfig if the node can't.
func (c *ClientConfig) ask(ctx context.Context, do func(context.Context, Requests) error) error {
	cert, err := c.current()
	switch {
	case err != nil: // only with another kubeconfig
	case c.Bootstrap == "" || time.Now().Before(cert.Leaf.NotAfter) || gone(c.Bootstrap):
		return do(ctx, c.Requests)
	}
	text, err := apiclient.IssuedKubeconfig(c.Bootstrap, ClientFile(c.Dir)) // now: the file may be gone when there is an answer
	if err != nil {
		return err
	}
	// An agent that was killed may have got the certificate, with a token that is used up.
	if kept, err := (files{c.Dir, clientName}).load(); err != nil || kept.Leaf.Subject.CommonName != subject(c.Node).CommonName || time.Now().After(kept.Leaf.NotAfter) {
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
