package certificates

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deckhand-node/deckhand/internal/kit/wake"
)

var resource = schema.GroupResource{Group: "certificates.k8s.io", Resource: "certificatesigningrequests"}

// signers have requests, as an API server and its controllers have them.
type signers struct {
	t    *testing.T
	key  crypto.Signer
	cert *x509.Certificate
	// life is how long certificates are valid from now on, and as how much older they are issued. ahead is how far their clock is.
	life, backdate, ahead time.Duration
	// silent answers nothing, deny refuses, without issues certificates for no addresses.
	silent, deny, without bool
	// created is called when a request was made.
	created func()

	mu      sync.Mutex
	has     map[string]*certificates.CertificateSigningRequest
	made    []*x509.CertificateRequest
	at      []time.Time
	calls   int
	changed wake.Group
}

func newSigners(t *testing.T) *signers {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	return &signers{t: t, key: key, cert: ca, life: time.Hour, backdate: 5 * time.Minute, has: map[string]*certificates.CertificateSigningRequest{}}
}

func (s *signers) Create(_ context.Context, r *certificates.CertificateSigningRequest) error {
	defer s.changed.Wake()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if s.has[r.Name] != nil {
		return apierrors.NewAlreadyExists(resource, r.Name)
	}
	r = r.DeepCopy()
	s.has[r.Name] = r
	block, _ := pem.Decode(r.Spec.Request)
	asked, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil || asked.CheckSignature() != nil {
		s.t.Errorf("request %s: %v", r.Name, err)
		return err
	}
	s.made, s.at = append(s.made, asked), append(s.at, time.Now())
	switch {
	case s.silent:
	case s.deny:
		r.Status.Conditions = []certificates.CertificateSigningRequestCondition{{Type: certificates.CertificateDenied, Status: v1.ConditionTrue, Reason: "No", Message: "not this one"}}
	default:
		r.Status.Certificate = s.issue(asked)
	}
	if s.created != nil {
		s.created()
	}
	return nil
}

// issue signs what is asked for.
func (s *signers) issue(asked *x509.CertificateRequest) []byte {
	now := time.Now().Add(s.ahead)
	template := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: asked.Subject, DNSNames: asked.DNSNames, IPAddresses: asked.IPAddresses,
		NotBefore: now.Add(-s.backdate), NotAfter: now.Add(s.life)}
	if s.without {
		template.IPAddresses = nil
	}
	der, err := x509.CreateCertificate(rand.Reader, template, s.cert, asked.PublicKey, s.key)
	if err != nil {
		s.t.Error(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func (s *signers) Get(_ context.Context, name string) (*certificates.CertificateSigningRequest, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	if r := s.has[name]; r != nil {
		return r.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(resource, name)
}

func (s *signers) Watch(ctx context.Context, name string, tell func(*certificates.CertificateSigningRequest)) {
	changed, stop := s.changed.Subscribe()
	defer stop()
	s.mu.Lock()
	s.calls++
	s.mu.Unlock()
	for {
		s.mu.Lock()
		now := s.has[name].DeepCopy()
		s.mu.Unlock()
		tell(now)
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// remove removes all requests.
func (s *signers) remove() {
	s.mu.Lock()
	clear(s.has)
	s.mu.Unlock()
	s.changed.Wake()
}

func (s *signers) asked() ([]*x509.CertificateRequest, []time.Time, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.made), slices.Clone(s.at), s.calls
}

// counts is a Meter.
type counts struct {
	mu     sync.Mutex
	until  time.Time
	ages   []time.Duration
	failed int
}

func (c *counts) Valid(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = until
}

func (c *counts) Renewed(age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ages = append(c.ages, age)
}

func (c *counts) Failed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed++
}

// host has the files of a node.
type host struct {
	t                                *testing.T
	dir, certs, kubeconfig, rejoined string
	mu                               sync.Mutex
	log, expires                     []string
	changed                          wake.Slot
	counts                           counts
	troubled                         wake.Slot
}

func newHost(t *testing.T) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{t: t, dir: dir, certs: filepath.Join(dir, "pki"), kubeconfig: filepath.Join(dir, "etc", "kubelet.conf"), rejoined: filepath.Join(dir, "bootstrap.conf"), changed: wake.NewSlot(), troubled: wake.NewSlot()}
	if err := os.Mkdir(h.certs, 0o700); err != nil {
		t.Fatal(err)
	}
	h.write(h.rejoined, "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: 'https://192.0.2.1:6443', tls-server-name: api}}]\nusers: [{name: u, user: {token: secret-token}}]\n")
	return h
}

func (h *host) write(path, text string) {
	h.t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		h.t.Fatal(err)
	}
}

func (h *host) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.log = append(h.log, args)
	}, funcr.Options{Verbosity: 10})
}

// logged counts the lines with a text.
func (h *host) logged(text string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	for _, line := range h.log {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// client is the Renewer of the client certificate; own are the requests as the node, first those with the other kubeconfig.
func (h *host) expire(message string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.expires = append(h.expires, time.Now().UTC().Format(time.RFC3339)+" "+message)
}

func (h *host) client(own, first Requests, change func(*ClientConfig)) *Renewer {
	c := ClientConfig{Node: "n1", Dir: h.certs, Kubeconfig: h.kubeconfig, Bootstrap: h.rejoined, Rotate: true, Requests: own, Changed: h.changed, Meter: &h.counts, Troubled: h.troubled.Wake, Expires: h.expire, Log: h.logger(),
		Refused:     func() bool { return false },
		AsBootstrap: func(ctx context.Context, do func(context.Context, Requests) error) error { return do(ctx, first) }}
	if change != nil {
		change(&c)
	}
	return NewClient(c)
}

// run runs a Renewer until stop.
func run(t *testing.T, r *Renewer) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := r.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

// listed are the files in the directory of certificates, with dates as DATE.
func (h *host) listed() []string {
	h.t.Helper()
	names := map[string]int{}
	err := filepath.WalkDir(h.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			h.t.Errorf("%s: mode %v, %v", path, info.Mode(), err)
		}
		if filepath.Dir(path) != h.certs {
			return nil
		}
		name := e.Name()
		if when := strings.TrimSuffix(strings.TrimPrefix(name, clientName+"-"), ".pem"); len(when) == len(dated) {
			name = clientName + "-DATE.pem"
		}
		names[name]++
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	var list []string
	for _, name := range slices.Sorted(maps.Keys(names)) {
		list = append(list, fmt.Sprint(name, " ", names[name]))
	}
	return list
}
