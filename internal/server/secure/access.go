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

// Users and groups that nobody gives names to
// (https://kubernetes.io/docs/reference/access-authn-authz/authentication/).
const (
	anonymous       = "system:anonymous"
	unauthenticated = "system:unauthenticated"
	authenticated   = "system:authenticated"
)

// unknownFor is how long a token counts as nobody's at most: an API server may not know a new one at once.
const unknownFor = 5 * time.Second

// Reviewer asks an API server about users. What it is given has a spec, and gets its status.
type Reviewer interface {
	ReviewToken(context.Context, *authentication.TokenReview) error
	ReviewAccess(context.Context, *authorization.SubjectAccessReview) error
}

// AccessConfig says who may use the HTTPS server.
type AccessConfig struct {
	// Node is the node's name.
	Node string
	// ClientCAFile has the authorities that sign client certificates; empty for none.
	ClientCAFile string
	// Anonymous takes in requests that don't say who they are from.
	Anonymous bool
	// Tokens has the reviewer asked whose a bearer token is. TokensFor is how long an answer counts.
	Tokens    bool
	TokensFor time.Duration
	// AlwaysAllow lets everybody who is taken in do everything; without it the reviewer is asked. AllowedFor and
	// RefusedFor say how long its answers count.
	AlwaysAllow            bool
	AllowedFor, RefusedFor time.Duration
	// Reviewer is nil where there is no API server: nobody has a token then, and nobody may do what isn't always
	// allowed.
	Reviewer Reviewer
	Log      logr.Logger
}

// authorities sign client certificates. The version differs from that of all that were read before.
type authorities struct {
	pool    *x509.CertPool
	version int
}

// Access decides who may use the HTTPS server.
type Access struct {
	conf   AccessConfig
	roots  *followed[authorities]
	certs  *answers[struct{}] // those that are accepted
	tokens *answers[authentication.TokenReviewStatus]
	rights *answers[bool]
}

// NewAccess returns who may use the server. Load reads the authorities first.
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

// Load reads the authorities that sign client certificates. The error names the file and the setting.
func (a *Access) Load() error {
	if a.roots == nil {
		return nil
	}
	_, err := a.roots.current()
	return err
}

// ReadAuthorities reads the certificates of those who sign client certificates, as they are in the file of
// authentication.x509.clientCAFile. Errors name the file.
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

// user returns who a request is from, and false if that isn't to be believed: by its certificate, or else by its token.
// Who shows one that isn't good is nobody, not an anonymous user. A kind of credentials that isn't checked here,
// because the configuration has no clientCAFile or no webhook, says nothing, as with the kubelet: clients show tokens
// to servers that let everybody in.
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
	// protocols has the subprotocols that a client of WebSockets can speak. A browser, which can't set Authorization,
	// has its token among them, in base64url without padding and after tokenProtocol, as API servers take it. No server
	// speaks that: it is beside others.
	protocols     = "Sec-Websocket-Protocol"
	tokenProtocol = "base64url.bearer.authorization.k8s.io."
)

// takeProtocolToken takes the token out of what a client can speak: no runtime sees it. It is empty if it can't be
// read, or isn't the only one.
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
		question = append(question, c.Raw...) // which says itself how long it is
	}
	if _, err := a.certs.get(r.Context(), question, func(context.Context) (struct{}, time.Duration, error) {
		until, err := verify(roots.pool, chain)
		return struct{}{}, time.Until(until), err
	}); err != nil {
		a.conf.Log.V(2).Info("A client's certificate isn't accepted", "err", err.Error())
		return u, false
	}
	who := chain[0].Subject
	return authentication.UserInfo{Username: who.CommonName, Groups: withAuthenticated(who.Organization)},
		who.CommonName != ""
}

// verify reports until when the first certificate is a client's, by the others and the authorities.
func verify(roots *x509.CertPool, chain []*x509.Certificate) (until time.Time, err error) {
	if len(chain) > maxChain {
		return until, fmt.Errorf("it comes with %d others: at most %d are looked at", len(chain)-1, maxChain-1)
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

// may reports whether a user may do something to a subresource of the node.
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
	key, err := spec.Marshal() // sorts what has no order
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

// verb is what the API calls what a request does to a resource.
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

// guard lets in only those who may do what they ask for to one of the subresources of the node, which are looked at in
// this order (https://kubernetes.io/docs/reference/access-authn-authz/kubelet-authn-authz/).
func (a *Access) guard(subresources []string,
	h func(http.ResponseWriter, *http.Request, *authentication.UserInfo)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, ok := a.user(r)
		if !ok {
			http.Error(w, "Unauthorized", http.StatusUnauthorized)
			return
		}
		for _, credential := range []string{"Authorization", "Proxy-Authorization", "Cookie"} {
			r.Header.Del(credential) // it is for nobody else
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
