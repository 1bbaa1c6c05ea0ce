package object

import (
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// ErrNoTokens is wrapped by the error for a token if this node has no API server to issue it.
var ErrNoTokens = errors.New("only an API server issues tokens, and this node has none")

// TokenRequest is a request for a token of a pod's service account. The token is bound to the pod.
type TokenRequest struct {
	Namespace, ServiceAccount string
	Pod                       string
	UID                       types.UID
	// Audience is the audience of the token; empty for the API server itself.
	Audience string
	// Life is the requested lifetime; 0 for the issuer's default.
	Life time.Duration
}

// Token is a token of a service account. Printing or encoding a Token shows its times, but not its text.
type Token struct {
	Issued, Until time.Time

	value *string // a pointer, so that printing a Token shows only the address
}

// NewToken returns a token with this text, which is valid from issued to until.
func NewToken(value string, issued, until time.Time) Token { return Token{issued, until, &value} }

// Value returns the token's text, which is secret.
func (t Token) Value() string { return *t.value }

// maxTokenAge is the age at which a token is renewed at the latest, however long it is valid.
const maxTokenAge = 24 * time.Hour

// Renew returns when the token has to be renewed: after 80 % of its lifetime or a day, whichever comes first
// (https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/). From then on a View returns
// another token or, until it has one, an *Unknown, with NotBefore if the request failed.
func (t Token) Renew() time.Time { return t.Issued.Add(min(t.Until.Sub(t.Issued)/5*4, maxTokenAge)) }

// TokenKey returns the key under which users of a pod's tokens are woken when the pod has another token, or when the
// last request for a token has failed.
func TokenKey(p *v1.Pod) pod.Object {
	return pod.Object{Kind: "TokenRequest", Namespace: p.Namespace, Name: p.Name}
}
