package secure

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// What a certificate that the agent makes itself is called in the directory of certificates, as the kubelet has it.
const (
	ownCert = "kubelet.crt"
	ownKey  = "kubelet.key"
)

// ownLifetime is how long a certificate that the agent makes itself is valid. It is made again at a start in its last
// month.
const (
	ownLifetime = 365 * 24 * time.Hour
	// ownBackdated is how long before it is made it is valid, for clients whose clocks are slow.
	ownBackdated = time.Hour
	ownRenewal   = 30 * 24 * time.Hour
)

// CertConfig says which certificate the server has.
type CertConfig struct {
	// CertFile and KeyFile are tlsCertFile and tlsPrivateKeyFile; empty for a pair in Dir.
	CertFile, KeyFile string
	// Dir is where the agent keeps the one that it makes itself (--cert-dir). Nobody else may write there.
	Dir string
	// Issued is the certificate that the cluster has issued (serverTLSBootstrap); nil before. It is nil itself where
	// the cluster isn't asked. Until there is one, CertFile is used if it is given.
	Issued func() *tls.Certificate
	// Name and IPs are the node's.
	Name string
	IPs  []net.IP
	Log  logr.Logger
}

// Certificate is the server's certificate. It follows the files: what clients are shown is never older than they are.
type Certificate struct {
	conf CertConfig
	pair *followed[*tls.Certificate]
}

// NewCertificate returns the server's certificate, which is first read by Load.
func NewCertificate(c CertConfig) *Certificate {
	own := c.CertFile == ""
	if own {
		c.CertFile, c.KeyFile = filepath.Join(c.Dir, ownCert), filepath.Join(c.Dir, ownKey)
	} else {
		c.Dir = ""
	}
	return &Certificate{conf: c, pair: &followed[*tls.Certificate]{
		what: fmt.Sprintf("the HTTPS server's certificate (tlsCertFile %s, tlsPrivateKeyFile %s)", c.CertFile,
			c.KeyFile),
		paths: []string{c.CertFile, c.KeyFile}, log: c.Log,
		read: func() (*tls.Certificate, error) {
			return ReadPair(c.CertFile, c.KeyFile)
		},
	}}
}

// maxFile is more than a certificate with its chain, its key, or all authorities of a distribution take, in bytes.
const maxFile = 4 << 20

// ReadPair reads a certificate and its key, as they are in the files of tlsCertFile and tlsPrivateKeyFile. Errors name
// the file.
func ReadPair(certFile, keyFile string) (*tls.Certificate, error) {
	cert, err := safeopen.ReadRegular(certFile, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", certFile, err)
	}
	key, err := safeopen.ReadRegular(keyFile, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", keyFile, err)
	}
	defer clear(key)
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("%s with the key %s: %w", certFile, keyFile, err)
	}
	return &pair, nil
}

var errNotIssued = errors.New("the cluster hasn't issued the HTTPS server's certificate yet (serverTLSBootstrap)")

// current is what clients are shown.
func (c *Certificate) current() (*tls.Certificate, error) {
	if c.conf.Issued == nil {
		return c.pair.current()
	}
	if issued := c.conf.Issued(); issued != nil {
		return issued, nil
	}
	if c.conf.Dir != "" {
		return nil, errNotIssued
	}
	return c.pair.current()
}

// Load reads the certificate. Where none was given, it makes one unless there is one that is good for a while, and
// isn't an authority that an older version made; an administrator's own stays as it is. The error names the file and
// the setting.
func (c *Certificate) Load() error {
	if c.conf.Issued != nil && c.conf.Dir != "" {
		return nil // it comes when it comes
	}
	pair, err := c.pair.current()
	if c.conf.Dir == "" || err == nil && time.Until(pair.Leaf.NotAfter) > ownRenewal && !madeAsAuthority(pair.Leaf) {
		return err
	}
	if makeErr := c.makeOwn(); makeErr != nil && err == nil && time.Now().Before(pair.Leaf.NotAfter) {
		c.conf.Log.Error(makeErr, "The HTTPS server's certificate expires soon and can't be made again",
			"path", c.conf.CertFile)
		return nil
	} else if makeErr != nil {
		return fmt.Errorf("make a certificate for the HTTPS server in %s (--cert-dir): %w", c.conf.Dir, makeErr)
	}
	_, err = c.pair.current()
	return err
}

// madeAsAuthority reports whether a certificate is one that versions before 2026-12 made: as makeOwn does, and a CA.
func madeAsAuthority(c *x509.Certificate) bool {
	return c.IsCA && c.KeyUsage == x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign &&
		slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) &&
		c.NotAfter.Sub(c.NotBefore) == ownLifetime+ownBackdated &&
		slices.Equal(c.DNSNames, []string{c.Subject.CommonName})
}

// makeOwn makes a key and a certificate that nobody but itself has signed.
func (c *Certificate) makeOwn() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return err
	}
	now := time.Now()
	template := x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: c.conf.Name}, DNSNames: []string{c.conf.Name},
		IPAddresses: c.conf.IPs,
		NotBefore:   now.Add(-ownBackdated), NotAfter: now.Add(ownLifetime), KeyUsage: x509.KeyUsageDigitalSignature,
		// No authority: who trusts this node trusts it for nothing else.
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		atomicfile.Write(c.conf.KeyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600),
		atomicfile.Write(c.conf.CertFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
}
