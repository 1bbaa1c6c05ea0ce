package credentials

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// Objects is the part of a pod's object.View that pulls need.
type Objects interface {
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	Token(ctx context.Context, r object.TokenRequest) (object.Token, error)
	Admitted() bool
}

// Node returns the entries of the node's own Docker configuration. *NodeFiles implements it.
type Node interface {
	Entries() []Entry
}

// Providers calls the credential provider plugins. *provider.Plugins implements it.
type Providers interface {
	// Credentials returns the plugins' credentials for an image, in the order to try them. The pod may be nil. The
	// error reports the plugins that failed; the result has the credentials of the others.
	Credentials(ctx context.Context, p *v1.Pod, objects Objects, image Image) ([]Credential, error)
}

// Recorder records events about pods.
type Recorder interface {
	Event(p *v1.Pod, e pod.Event)
}

// Options configures a Keyring.
type Options struct {
	Node      Node
	Providers Providers
	Recorder  Recorder
	Log       logr.Logger
}

// Keyring finds the credentials that a pod may use for an image. It caches none itself, and is safe for concurrent
// use.
type Keyring struct{ o Options }

// NewKeyring returns a Keyring.
func NewKeyring(o Options) *Keyring { return &Keyring{o: o} }

// For returns the credentials to try for an image, in this order: those of the pod's pull secrets, of the node's
// Docker configuration, and of credential providers; within each, in the order of Match. If there are none, the image
// is pulled anonymously. p and objects are nil for a pull by a command: it uses only the node's credentials.
//
// A source that fails is reported in an event of the pod, and the others are used. The only errors are an invalid
// image name, the context's error, and an *object.Unknown while it is unclear whether, for example, a pull secret
// exists: a pull without the secret could fail and start the backoff.
func (k *Keyring) For(ctx context.Context, p *v1.Pod, objects Objects, image string) ([]Credential, error) {
	name, err := ParseImage(image)
	if err != nil {
		return nil, err
	}
	var list []Credential
	if p != nil {
		entries, err := k.pullSecrets(ctx, p, objects)
		if err != nil {
			return nil, err
		}
		list = Match(entries, name)
	}
	list = append(list, Match(k.o.Node.Entries(), name)...)
	provided, err := k.o.Providers.Credentials(ctx, p, objects, name)
	if ctxErr := ctx.Err(); ctxErr != nil {
		return nil, ctxErr
	}
	if object.IsUnknown(err) {
		return nil, err
	}
	if err != nil {
		k.o.Log.Error(err, "Credential providers failed; trying other credentials", "image", name.Name())
		k.warn(p, pod.ReasonFailedCredentialProvider,
			fmt.Sprintf("No credentials for image %q from a credential provider: %v", image, err))
	}
	return append(list, provided...), nil
}

// pullSecrets returns the entries of all the pod's pull secrets, in the order of the pod's list.
func (k *Keyring) pullSecrets(ctx context.Context, p *v1.Pod, objects Objects) ([]Entry, error) {
	var entries []Entry
	var missing []string
	for _, name := range k.secretNames(ctx, p, objects) {
		secret, err := objects.Secret(ctx, p.Namespace, name)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if object.IsUnknown(err) {
			return nil, err
		}
		if err != nil {
			missing = append(missing, name)
			if !apierrors.IsNotFound(err) {
				k.o.Log.Error(err, "A pull secret can't be read; trying without it",
					"pod", klog.KRef(p.Namespace, p.Name), "secret", klog.KRef(p.Namespace, name))
			}
			continue
		}
		config, err := ParseSecret(secret)
		if err != nil {
			config.Problems = []string{err.Error()}
		}
		if len(config.Problems) > 0 {
			k.warn(p, pod.ReasonInvalidImagePullSecret,
				fmt.Sprintf("Pull secret %q can't be used as it is: %s", name, strings.Join(config.Problems, "; ")))
		}
		entries = append(entries, config.Entries...)
	}
	if len(missing) > 0 {
		k.warn(p, pod.ReasonFailedToRetrieveImagePullSecret,
			fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(missing, ", ")))
	}
	return entries, nil
}

// MissingSecrets returns the names of the pod's pull secrets that don't exist.
func (k *Keyring) MissingSecrets(ctx context.Context, p *v1.Pod, objects Objects) []string {
	var missing []string
	for _, name := range k.secretNames(ctx, p, objects) {
		if _, err := objects.Secret(ctx, p.Namespace, name); apierrors.IsNotFound(err) {
			missing = append(missing, name)
		}
	}
	return missing
}

// secretNames returns the names of the pod's pull secrets. If the pod lists none, it returns those of the pod's service
// account. For pods of the API server, the admission plugin ServiceAccount copies these names to the pod
// (https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/).
func (k *Keyring) secretNames(ctx context.Context, p *v1.Pod, objects Objects) []string {
	refs := p.Spec.ImagePullSecrets
	if len(refs) == 0 && !objects.Admitted() {
		account := cmp.Or(p.Spec.ServiceAccountName, "default")
		sa, err := objects.ServiceAccount(ctx, p.Namespace, account)
		switch {
		case err == nil:
			refs = sa.ImagePullSecrets
		case !apierrors.IsNotFound(err) && ctx.Err() == nil:
			k.o.Log.Error(err, "A service account can't be read; trying without its pull secrets",
				"pod", klog.KRef(p.Namespace, p.Name), "serviceAccount", klog.KRef(p.Namespace, account))
		}
	}
	var names []string
	for _, ref := range refs {
		if ref.Name != "" { // the API permits empty names
			names = append(names, ref.Name)
		}
	}
	return names
}

func (k *Keyring) warn(p *v1.Pod, reason pod.Reason, message string) {
	if p != nil {
		k.o.Recorder.Event(p, pod.Event{Type: v1.EventTypeWarning, Reason: reason, Message: message})
	}
}
