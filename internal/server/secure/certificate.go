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
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// What a certificate that the agent makes itself is called in the directory of certificates, as the kubelet has it.
const (
	ownCert = "kubelet.crt"
	ownKey  = "kubelet.key"
)

// ownLifetime is how long a certificate that the agent makes itself is valid. It is made again at a start in its last month.
const (
	ownLifetime = 365 * 24 * time.Hour
	ownRenewal  = 30 * 24 * time.Hour
)

// CertConfig says which certificate the server has.
type CertConfig struct {
	// CertFile and KeyFile are tlsCertFile and tlsPrivateKeyFile; empty for a pair in Dir.
	CertFile, KeyFile string
	// Dir is where the agent keeps the one that it makes itself (--cert-dir). Nobody else may write there.
	Dir string
	// Name and IPs are the node's.
	Name string
	IPs  []net.IP
	Log  logr.Logger
}

// Certificate is the server's certificate. It follows the files: what clients are shown is never older than they are.
type Certificate struct {
	conf CertConfig

	mu   sync.Mutex
	seen [2]fs.FileInfo
	pair *tls.Certificate
	// told says that it was logged that the files can't be used.
	told bool
}

// NewCertificate returns the server's certificate, which is first read by Load.
func NewCertificate(c CertConfig) *Certificate { return &Certificate{conf: c} }

// Load reads the certificate. Where none was given, it makes one unless there is one that is good for a while. The error names
// the file and the setting.
func (c *Certificate) Load() error {
	if c.conf.CertFile != "" {
		_, err := c.current()
		return err
	}
	c.conf.CertFile, c.conf.KeyFile = filepath.Join(c.conf.Dir, ownCert), filepath.Join(c.conf.Dir, ownKey)
	pair, err := c.current()
	if err == nil && time.Until(pair.Leaf.NotAfter) > ownRenewal {
		return nil
	}
	if makeErr := c.makeOwn(); makeErr != nil && err == nil && time.Now().Before(pair.Leaf.NotAfter) {
		c.conf.Log.Error(makeErr, "The HTTPS server's certificate expires soon and can't be made again", "path", c.conf.CertFile)
		return nil
	} else if makeErr != nil {
		err = makeErr
		return fmt.Errorf("make a certificate for the HTTPS server in %s (--cert-dir): %w", c.conf.Dir, err)
	}
	_, err = c.current()
	return err
}

// current is the pair as the files have it; if they can't be used, the last one that could.
func (c *Certificate) current() (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var now [2]fs.FileInfo
	for i, path := range []string{c.conf.CertFile, c.conf.KeyFile} {
		info, err := os.Stat(path)
		if err != nil {
			return c.fallback(err)
		}
		now[i] = info
	}
	if c.pair != nil && unchanged(c.seen[0], now[0]) && unchanged(c.seen[1], now[1]) {
		return c.pair, nil
	}
	pair, err := tls.LoadX509KeyPair(c.conf.CertFile, c.conf.KeyFile)
	if err != nil {
		return c.fallback(err)
	}
	if c.told {
		c.conf.Log.Info("The HTTPS server's certificate can be used again", "path", c.conf.CertFile)
	}
	c.seen, c.pair, c.told = now, &pair, false
	return c.pair, nil
}

func (c *Certificate) fallback(err error) (*tls.Certificate, error) {
	err = fmt.Errorf("the HTTPS server's certificate (tlsCertFile %s, tlsPrivateKeyFile %s): %w", c.conf.CertFile, c.conf.KeyFile, err)
	if c.pair == nil {
		return nil, err
	}
	if !c.told {
		c.told = true
		c.conf.Log.Error(err, "The last certificate that could be used is served on")
	}
	return c.pair, nil
}

func unchanged(was, now fs.FileInfo) bool {
	return os.SameFile(was, now) && was.ModTime().Equal(now.ModTime()) && was.Size() == now.Size()
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
		SerialNumber: serial, Subject: pkix.Name{CommonName: c.conf.Name}, DNSNames: []string{c.conf.Name}, IPAddresses: c.conf.IPs,
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(ownLifetime), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true, IsCA: true,
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
