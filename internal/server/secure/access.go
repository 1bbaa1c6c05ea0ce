package secure

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	authentication "k8s.io/api/authentication/v1"
	authorization "k8s.io/api/authorization/v1"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// Predefined users and groups (https://kubernetes.io/docs/reference/access-authn-authz/authentication/).
const (
	anonymous       = "system:anonymous"
	unauthenticated = "system:unauthenticated"
	authenticated   = "system:authenticated"
)

// unknownFor limits how long the rejection of a token is cached, because an API server may reject a token that was just
// created, and accept it later.
const unknownFor = 5 * time.Second

// Reviewer sends reviews to an API server. It reads the review's spec and sets its status.
type Reviewer interface {
	ReviewToken(context.Context, *authentication.TokenReview) error
	ReviewAccess(context.Context, *authorization.SubjectAccessReview) error
}

// AccessConfig configures authentication and authorization of the HTTPS server.
type AccessConfig struct {
	// Node is the node's name.
	Node string
	// ClientCAFile is the file of the CA certificates that sign client certificates. If it is empty, no client
	// certificate is accepted.
	ClientCAFile string
	// Anonymous accepts requests without credentials.
	Anonymous bool
	// Tokens enables bearer tokens, which TokenReviews verify. TokensFor is how long a review's result is cached.
	Tokens    bool
	TokensFor time.Duration
	// AlwaysAllow authorizes all requests of authenticated users; without it, SubjectAccessReviews decide. AllowedFor
	// and RefusedFor are how long positive and negative decisions are cached.
	AlwaysAllow            bool
	AllowedFor, RefusedFor time.Duration
	// Reviewer is nil without an API server. Then no token is accepted and, unless AlwaysAllow is set, no request is
	// authorized.
	Reviewer Reviewer
	Log      logr.Logger
}

// authorities is the pool of CA certificates that verify client certificates. Its version is a number that changes with
// each reading of the file.
type authorities struct {
	pool    *x509.CertPool
	version int
}

// Access authenticates and authorizes requests to the HTTPS server.
type Access struct {
	conf   AccessConfig
	roots  *followed[authorities]
	certs  *answers[struct{}] // certificates that were accepted
	tokens *answers[authentication.TokenReviewStatus]
	rights *answers[bool]
}

// NewAccess returns an Access; call Load before the first request.
func NewAccess(c AccessConfig) *Access {
	a := &Access{conf: c, certs: newAnswers[struct{}](maxVerified, strangerWait),
		tokens: newAnswers[authentication.TokenReviewStatus](maxStrangers, strangerWait),
		rights: newAnswers[bool](maxReviews, reviewLimit)}
	if c.ClientCAFile != "" {
		read := 0
		a.roots = &followed[authorities]{
			what:  "the authorities of client certificates (authentication.x509.clientCAFile)",
			paths: []string{c.ClientCAFile}, log: c.Log,
			read: func() (authorities, error) {
				pool, err := ReadAuthorities(c.ClientCAFile)
				read++
				return authorities{pool, read}, err
			}}
	}
	return a
}

// Load reads the CA certificates for client certificates. The error names the file and the setting.
func (a *Access) Load() error {
	if a.roots == nil {
		return nil
	}
	_, err := a.roots.current()
	return err
}

// ReadAuthorities reads the CA certificates for client certificates from the file of authentication.x509.clientCAFile.
// Errors name the file.
func ReadAuthorities(path string) (*x509.CertPool, error) {
	text, err := safeopen.ReadRegular(path, maxFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s has no certificate in PEM", path)
	}
	return roots, nil
}

// user returns the user of a request, by client certificate or else by token. It returns false if authentication
// failed: a request with invalid credentials isn't anonymous. Credentials whose check isn't configured (no
// clientCAFile or no webhook) are ignored, as in the kubelet: many clients send a token even to a server that allows
// all requests.
func (a *Access) user(r *http.Request) (u authentication.UserInfo, ok bool) {
	certified := a.roots != nil && r.TLS != nil && len(r.TLS.PeerCertificates) > 0
	inProtocols, shown := takeProtocolToken(r.Header)
	if certified {
		if u, ok = a.byCertificate(r); ok {
			return u, true
		}
	}
	header := r.Header.Get("Authorization")
	if a.conf.Tokens {
		if scheme, token, _ := strings.Cut(header, " "); strings.EqualFold(scheme, "bearer") && token != "" {
			return a.byToken(r.Context(), token)
		}
		if inProtocols != "" {
			return a.byToken(r.Context(), inProtocols)
		}
	}
	if certified || a.conf.Tokens && (header != "" || shown) || !a.conf.Anonymous {
		return u, false
	}
	return authentication.UserInfo{Username: anonymous, Groups: []string{unauthenticated}}, true
}

const (
	// protocols is the header with the subprotocols that a WebSocket client offers. A browser can't set
	// Authorization: it offers its token as a subprotocol, in base64url without padding after tokenProtocol, as API
	// servers accept it. No server selects that subprotocol, so the client has to offer another one, too.
	protocols     = "Sec-Websocket-Protocol"
	tokenProtocol = "base64url.bearer.authorization.k8s.io."
)

// takeProtocolToken removes the token from the offered subprotocols, so that it isn't forwarded to the runtime; shown
// reports whether there was one. The returned token is empty if it is malformed or not the only one.
func takeProtocolToken(h http.Header) (token string, shown bool) {
	var rest []string
	number := 0
	for p := range strings.SplitSeq(strings.Join(h.Values(protocols), ","), ",") {
		p = strings.TrimSpace(p)
		encoded, ok := strings.CutPrefix(p, tokenProtocol)
		if !ok {
			rest = append(rest, p)
			continue
		}
		number++
		decoded, err := base64.RawURLEncoding.DecodeString(encoded)
		if token = string(decoded); err != nil || !utf8.ValidString(token) {
			token = ""
		}
	}
	if number == 0 {
		return "", false
	}
	if h.Set(protocols, strings.Join(rest, ", ")); len(rest) == 0 {
		h.Del(protocols)
	}
	if number > 1 || len(rest) == 0 || !strings.EqualFold(h.Get("Upgrade"), "websocket") {
		token = ""
	}
	return token, true
}

func (a *Access) byCertificate(r *http.Request) (u authentication.UserInfo, ok bool) {
	roots, err := a.roots.current()
	if err != nil {
		return u, false
	}
	chain := r.TLS.PeerCertificates
	question := binary.AppendUvarint(nil, uint64(roots.version))
	for _, c := range chain {
		question = append(question, c.Raw...) // DER encodes its own length, so concatenation is unambiguous
	}
	if _, err := a.certs.get(r.Context(), question, func(context.Context) (struct{}, time.Duration, error) {
		until, err := verify(roots.pool, chain)
		return struct{}{}, time.Until(until), err
	}); err != nil {
		a.conf.Log.V(2).Info("A client's certificate isn't accepted", "err", err.Error())
		return u, false
	}
	subject := chain[0].Subject
	return authentication.UserInfo{Username: subject.CommonName, Groups: withAuthenticated(subject.Organization)},
		subject.CommonName != ""
}

// verify verifies a client certificate, the first of chain, with the others as intermediates. It returns the time when
// the first certificate of the verified chain expires.
func verify(roots *x509.CertPool, chain []*x509.Certificate) (until time.Time, err error) {
	if len(chain) > maxChain {
		return until, fmt.Errorf("it comes with %d intermediate certificates: at most %d are supported",
			len(chain)-1, maxChain-1)
	}
	options := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	for _, c := range chain[1:] {
		options.Intermediates.AddCert(c)
	}
	chains, err := chain[0].Verify(options)
	if err != nil {
		return until, err
	}
	for _, c := range chains[0] {
		if until.IsZero() || c.NotAfter.Before(until) {
			until = c.NotAfter
		}
	}
	return until, nil
}

func withAuthenticated(groups []string) []string {
	if slices.Contains(groups, authenticated) {
		return groups
	}
	return append(slices.Clone(groups), authenticated)
}

func (a *Access) byToken(ctx context.Context, token string) (u authentication.UserInfo, ok bool) {
	if a.conf.Reviewer == nil {
		return u, false
	}
	status, err := a.tokens.get(ctx, []byte(token),
		func(ctx context.Context) (authentication.TokenReviewStatus, time.Duration, error) {
			review := &authentication.TokenReview{Spec: authentication.TokenReviewSpec{Token: token}}
			err := a.conf.Reviewer.ReviewToken(ctx, review)
			if !review.Status.Authenticated {
				return review.Status, min(a.conf.TokensFor, unknownFor), err
			}
			return review.Status, a.conf.TokensFor, err
		})
	if err != nil {
		a.conf.Log.V(2).Info("The API server can't be asked whose a token is", "err", err.Error())
		return u, false
	}
	if !status.Authenticated || status.User.Username == "" {
		return u, false
	}
	u = status.User
	u.Groups = withAuthenticated(u.Groups)
	return u, true
}

// may reports whether a user is authorized for a verb on a subresource of the node.
func (a *Access) may(ctx context.Context, u *authentication.UserInfo, verb, subresource string) (bool, error) {
	if a.conf.AlwaysAllow {
		return true, nil
	}
	if a.conf.Reviewer == nil {
		return false, nil
	}
	spec := authorization.SubjectAccessReviewSpec{User: u.Username, UID: u.UID, Groups: u.Groups,
		ResourceAttributes: &authorization.ResourceAttributes{Verb: verb, Version: "v1", Resource: "nodes",
			Subresource: subresource, Name: a.conf.Node}}
	if len(u.Extra) > 0 {
		spec.Extra = map[string]authorization.ExtraValue{}
		for key, values := range u.Extra {
			spec.Extra[key] = authorization.ExtraValue(values)
		}
	}
	key, err := spec.Marshal() // Marshal sorts map keys
	if err != nil {
		return false, err
	}
	return a.rights.get(ctx, key, func(ctx context.Context) (bool, time.Duration, error) {
		review := &authorization.SubjectAccessReview{Spec: spec}
		if err := a.conf.Reviewer.ReviewAccess(ctx, review); err != nil {
			return false, 0, err
		}
		if review.Status.Allowed && !review.Status.Denied {
			return true, a.conf.AllowedFor, nil
		}
		return false, a.conf.RefusedFor, nil
	})
}

// verb returns the API verb of an HTTP method.
func verb(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return "get"
}

// guard calls h for requests whose user is authorized for one of these subresources of the node. It checks the
// subresources in this order (https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/).
func (a *Access) guard(subresources []string,
	h func(http.ResponseWriter, *http.Request, *authentication.UserInfo)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, ok := a.user(r)
		if !ok {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		for _, credential := range []string{"Authorization", "Proxy-Authorization", "Cookie"} {
			r.Header.Del(credential) // later handlers must not see or forward it
		}
		does := verb(r.Method)
		asked := fmt.Sprintf("(user=%s, verb=%s, resource=nodes, subresource(s)=%v)", u.Username, does, subresources)
		for _, s := range subresources {
			allowed, err := a.may(r.Context(), &u, does, s)
			if err != nil {
				a.conf.Log.V(2).Info("The API server can't be asked what a user may do", "user", u.Username,
					"err", err.Error())
				http.Error(w, "Authorization error "+asked, http.StatusInternalServerError)
				return
			}
			if allowed {
				h(w, r, &u)
				return
			}
		}
		http.Error(w, "Forbidden "+asked, http.StatusForbidden)
	})
}
