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

// File names of the agent's self-signed certificate in the certificate directory, the same as the kubelet's.
const (
	ownCert = "kubelet.crt"
	ownKey  = "kubelet.key"
)

// ownLifetime is how long a self-signed certificate is valid. The agent renews it in its last month (ownRenewal), at a
// start or when the clock was set.
const (
	ownLifetime = 365 * 24 * time.Hour
	// ownBackdated is how long before its creation a certificate is valid, for clients whose clocks are slow.
	ownBackdated = time.Hour
	ownRenewal   = 30 * 24 * time.Hour
)

// CertConfig configures the server's certificate.
type CertConfig struct {
	// CertFile and KeyFile are tlsCertFile and tlsPrivateKeyFile; empty for a self-signed pair in Dir.
	CertFile, KeyFile string
	// Dir is the directory of the self-signed certificate (--cert-dir). Only root may write there.
	Dir string
	// Issued returns the certificate that the cluster has issued (serverTLSBootstrap); nil before the first one is
	// issued. Until then the server uses CertFile, if it is set. The function Issued is nil without serverTLSBootstrap.
	Issued func() *tls.Certificate
	// Name and IPs are the node's name and addresses.
	Name string
	IPs  []net.IP
	Log  logr.Logger
}

// Certificate is the server's certificate. It reloads changed files at the next handshake.
type Certificate struct {
	conf CertConfig
	pair *followed[*tls.Certificate]
}

// NewCertificate returns the server's certificate; call Load before the first handshake.
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

// maxFile is the maximum size of a file in bytes: more than a certificate with its chain, a key, or all CA
// certificates of a distribution need.
const maxFile = 4 << 20

// ReadPair reads a certificate and its key from the files of tlsCertFile and tlsPrivateKeyFile. Errors name the file.
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

// current returns the certificate for a handshake.
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

// Load reads the certificate. Without CertFile it uses the self-signed certificate in Dir. It creates that certificate
// if there is no usable one, if it expires soon or isn't valid yet (the clock was set back since), or if an older
// version of the agent made it as a CA certificate. It never replaces CertFile. The error names the file and the
// setting.
func (c *Certificate) Load() error {
	if c.conf.Issued != nil && c.conf.Dir != "" {
		return nil // the cluster issues it later
	}
	pair, err := c.pair.current()
	if c.conf.Dir == "" || err == nil && time.Until(pair.Leaf.NotAfter) > ownRenewal &&
		!time.Now().Before(pair.Leaf.NotBefore) && !madeAsAuthority(pair.Leaf) {
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

// madeAsAuthority reports whether a certificate was made by an agent of before 2026-12, which made its self-signed
// certificate as a CA certificate.
func madeAsAuthority(c *x509.Certificate) bool {
	return c.IsCA && c.KeyUsage == x509.KeyUsageDigitalSignature|x509.KeyUsageCertSign &&
		slices.Equal(c.ExtKeyUsage, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}) &&
		c.NotAfter.Sub(c.NotBefore) == ownLifetime+ownBackdated &&
		slices.Equal(c.DNSNames, []string{c.Subject.CommonName})
}

// makeOwn creates a key and a self-signed certificate.
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
		// Not a CA: clients that trust this certificate must not trust others that are signed with its key.
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
