package certificates

import (
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	certificates "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Requests are the certificate signing requests of an API server. Errors are the server's
// (k8s.io/apimachinery/pkg/api/errors).
type Requests interface {
	Create(ctx context.Context, r *certificates.CertificateSigningRequest) error
	Get(ctx context.Context, name string) (*certificates.CertificateSigningRequest, error)
	// Watch calls onChange with each state of the request of that name, nil if there is none, until ctx ends.
	Watch(ctx context.Context, name string, onChange func(*certificates.CertificateSigningRequest))
}

// refusal is a final error: the request will never yield a certificate.
type refusal struct{ name, why string }

func (r *refusal) Error() string { return "certificate signing request " + r.name + ": " + r.why }

// obtain requests a certificate and saves it. The key stays on disk meanwhile, so that an agent that restarts
// makes the same request and finds its answer.
func (r *Renewer) obtain(ctx context.Context, via Requests, wanted *x509.CertificateRequest) (*tls.Certificate, error) {
	now, _ := r.conf.Current() // nil if there is none
	key, err := r.files.nextKey(now)
	if err != nil {
		return nil, err
	}
	request, err := r.request(wanted, key)
	if err != nil {
		return nil, err
	}
	issued, err := r.answer(ctx, via, request)
	var got *tls.Certificate
	if err == nil {
		if got, err = r.files.save(issued, key, time.Now()); err != nil {
			err = fmt.Errorf("certificate signing request %s: %w", request.Name, err)
		}
	}
	if errors.As(err, new(*refusal)) {
		return nil, errors.Join(err, r.files.forgetKey()) // a new key makes the next request a different one
	}
	return got, err
}

// request is the CertificateSigningRequest for a key. Its name is a hash of the signer and the content, so that
// the same request is never created twice, and no two nodes use the same name.
func (r *Renewer) request(wanted *x509.CertificateRequest,
	key *ecdsa.PrivateKey) (*certificates.CertificateSigningRequest, error) {
	der, err := x509.CreateCertificateRequest(rand.Reader, wanted, key)
	if err != nil {
		return nil, fmt.Errorf("certificate signing request: %w", err)
	}
	parsed, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, fmt.Errorf("certificate signing request: %w", err)
	}
	sum := sha256.Sum256(append([]byte(r.conf.Signer), parsed.RawTBSCertificateRequest...))
	return &certificates.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-csr-%x", sum[:16])},
		Spec: certificates.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: r.conf.Signer,
			Usages: []certificates.KeyUsage{certificates.UsageDigitalSignature, r.conf.Usage},
		},
	}, nil
}

// answer creates a request, unless it exists, and waits until it is answered.
func (r *Renewer) answer(ctx context.Context, via Requests,
	request *certificates.CertificateSigningRequest) ([]byte, error) {
	err := via.Create(ctx, request)
	if apierrors.IsAlreadyExists(err) {
		var there *certificates.CertificateSigningRequest
		if there, err = via.Get(ctx, request.Name); err == nil &&
			(there.Spec.SignerName != r.conf.Signer || !sameKey(there.Spec.Request, request.Spec.Request)) {
			err = &refusal{request.Name, "somebody else has made one of that name"}
		}
	}
	if err != nil {
		return nil, err
	}
	r.conf.Log.Info("Waits for a certificate of the cluster", "name", request.Name, "advice",
		"where nothing approves it: kubectl certificate approve "+request.Name)
	r.trouble("the cluster hasn't answered certificate signing request " + request.Name +
		" yet: where nothing approves it, run: kubectl certificate approve " + request.Name)
	there := await(ctx, via, request.Name)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case there == nil: // the cluster removes unanswered requests after a day
		return nil, fmt.Errorf("certificate signing request %s: it was removed before it was answered", request.Name)
	case len(there.Status.Certificate) > 0:
		return there.Status.Certificate, nil
	}
	return nil, &refusal{request.Name, refused(there)}
}

// await waits until a request is answered or deleted. It returns nil for a deleted one.
func await(ctx context.Context, via Requests, name string) (answered *certificates.CertificateSigningRequest) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	via.Watch(ctx, name, func(now *certificates.CertificateSigningRequest) {
		if ctx.Err() == nil && (now == nil || len(now.Status.Certificate) > 0 || refused(now) != "") {
			answered = now
			stop()
		}
	})
	return answered
}

// refused is why a request was denied or failed; empty if it may still be answered.
func refused(r *certificates.CertificateSigningRequest) string {
	for _, c := range r.Status.Conditions {
		if c.Status == v1.ConditionTrue &&
			(c.Type == certificates.CertificateDenied || c.Type == certificates.CertificateFailed) {
			return fmt.Sprintf("%s (%s: %s)", c.Type, c.Reason, c.Message)
		}
	}
	return ""
}

func sameKey(a, b []byte) bool {
	key := func(text []byte) *ecdsa.PublicKey {
		block, _ := pem.Decode(text)
		if block == nil {
			return nil
		}
		r, err := x509.ParseCertificateRequest(block.Bytes)
		if err != nil {
			return nil
		}
		k, _ := r.PublicKey.(*ecdsa.PublicKey)
		return k
	}
	x, y := key(a), key(b)
	return x != nil && y != nil && x.Equal(y)
}
