package registry

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// WithTLS gives the registry a certificate of an authority of its own, see CAFile.
func WithTLS() Option {
	return func(t testing.TB, r *Registry) {
		t.Helper()
		ca, server := certificates(t, r.name)
		r.caFile = filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(r.caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca}), 0o600); err != nil {
			t.Fatal(err)
		}
		r.server.TLS = &tls.Config{Certificates: []tls.Certificate{server}, MinVersion: tls.VersionTLS12}
	}
}

// CAFile holds the certificate of the authority of a registry with TLS; empty without.
func (r *Registry) CAFile() string { return r.caFile }

// URL is the registry's address with its scheme.
func (r *Registry) URL() string { return r.server.URL }

// WriteHosts tells a containerd of the registry and its authority, in a directory that its
// config_path names (for the embedded runtime: ROOT-DIR/containerd/certs.d). containerd
// reads it with each pull.
func (r *Registry) WriteHosts(t testing.TB, dir string) {
	t.Helper()
	dir = filepath.Join(dir, r.Host())
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("server = %q\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", r.URL(), r.URL())
	if r.caFile != "" {
		text += fmt.Sprintf("  ca = %q\n", r.caFile)
	}
	if err := os.WriteFile(filepath.Join(dir, "hosts.toml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// certificates makes an authority and a server's certificate by it, for 127.0.0.1 and a name, if there is one.
func certificates(t testing.TB, name string) (ca []byte, server tls.Certificate) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	from, to := time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
	authority := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test registry authority"}, NotBefore: from, NotAfter: to,
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	ca, err = x509.CreateCertificate(rand.Reader, authority, authority, &caKey.PublicKey, caKey)
	must(err)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(err)
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "127.0.0.1"}, NotBefore: from, NotAfter: to,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: slices.DeleteFunc([]string{"localhost", name}, func(n string) bool { return n == "" }), KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	text, err := x509.CreateCertificate(rand.Reader, leaf, authority, &key.PublicKey, caKey)
	must(err)
	return ca, tls.Certificate{Certificate: [][]byte{text}, PrivateKey: key}
}
