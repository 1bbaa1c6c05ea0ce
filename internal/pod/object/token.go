package object

import (
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
)

// ErrNoTokens is in the error for a token where nobody issues any.
var ErrNoTokens = errors.New("only an API server issues tokens, and this node has none")

// TokenRequest asks for a token of a pod's service account, bound to the pod.
type TokenRequest struct {
	Namespace, ServiceAccount string
	Pod                       string
	UID                       types.UID
	// Audience is the audience of the token; empty for the API server itself.
	Audience string
	// Life is the requested lifetime; 0 for the issuer's default.
	Life time.Duration
}

// Token is a token of a service account. Printing or encoding it shows no more than its times.
type Token struct {
	Issued, Until time.Time

	value *string // behind a pointer, which alone is printed
}

// NewToken returns a token.
func NewToken(value string, issued, until time.Time) Token { return Token{issued, until, &value} }

// Value is the token's text, to be sent.
func (t Token) Value() string { return *t.value }

// maxTokenAge is how old a token gets, however long it is valid.
const maxTokenAge = 24 * time.Hour

// Renew is when another one is due: after 80 % of its life or a day, whichever comes first
// (https://kubernetes.io/docs/tasks/configure-pod-container/configure-service-account/). From then on a View returns
// another one, or an *Unknown while there is none, with NotBefore if that failed.
func (t Token) Renew() time.Time { return t.Issued.Add(min(t.Until.Sub(t.Issued)/5*4, maxTokenAge)) }

// TokenKey is the key that wakes users when there is another token for a pod, or the last try has failed.
func TokenKey(p *v1.Pod) pod.Object {
	return pod.Object{Kind: "TokenRequest", Namespace: p.Namespace, Name: p.Name}
}
