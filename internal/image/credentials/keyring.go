package credentials

import (
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

// Objects is as much of a pod's object.View as is needed for its pulls.
type Objects interface {
	Secret(ctx context.Context, namespace, name string) (*v1.Secret, error)
	ServiceAccount(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	Token(ctx context.Context, r object.TokenRequest) (object.Token, error)
	Admitted() bool
}

// Node is the node's own configuration: *NodeFiles.
type Node interface {
	Entries() []Entry
}

// Providers are the credential provider plugins: *provider.Plugins.
type Providers interface {
	// Credentials returns what the plugins have for an image, in the order in which it is
	// to be tried. The pod may be nil. The error reports plugins that failed, beside what the others said.
	Credentials(ctx context.Context, p *v1.Pod, objects Objects, image Image) ([]Credential, error)
}

// Recorder takes events about pods.
type Recorder interface {
	Event(p *v1.Pod, e pod.Event)
}

// Options are what a Keyring looks into.
type Options struct {
	Node      Node
	Providers Providers
	Recorder  Recorder
	Log       logr.Logger
}

// Keyring knows which credentials a pod may use for an image. It keeps none itself,
// and may be used by many goroutines.
type Keyring struct{ o Options }

// NewKeyring makes a Keyring.
func NewKeyring(o Options) *Keyring { return &Keyring{o: o} }

// For returns the credentials to try for an image, in this order: those of the
// pod's pull secrets, those of the node's docker configuration, those of credential
// providers; within each as Match has them. None means that the image is to be pulled
// anonymously. p and what it may see are nil for a pull that a person asked for: then only the node's count.
//
// A source that fails doesn't keep the others from being tried: the pod's event tells
// of it. The only errors are an invalid image name, the context's, and an *object.Unknown for what may
// be there, as a pull secret: a pull without it could fail, and count.
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

// pullSecrets are the entries of the pod's pull secrets, all together, in the order
// in which the pod lists the secrets.
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

// MissingSecrets are the pod's pull secrets that aren't there, by name.
func (k *Keyring) MissingSecrets(ctx context.Context, p *v1.Pod, objects Objects) []string {
	var missing []string
	for _, name := range k.secretNames(ctx, p, objects) {
		if _, err := objects.Secret(ctx, p.Namespace, name); apierrors.IsNotFound(err) {
			missing = append(missing, name)
		}
	}
	return missing
}

// secretNames are those that the pod lists, or else its service account, as the
// admission plugin ServiceAccount would have copied them, and has where there is one
// (https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/).
func (k *Keyring) secretNames(ctx context.Context, p *v1.Pod, objects Objects) []string {
	refs := p.Spec.ImagePullSecrets
	if len(refs) == 0 && !objects.Admitted() {
		account := p.Spec.ServiceAccountName
		if account == "" {
			account = "default"
		}
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
		if ref.Name != "" { // the API allows it, and it means nothing
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
