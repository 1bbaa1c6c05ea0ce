package provider

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kubeletv1 "k8s.io/kubelet/config/v1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// asker is the image and pod that a plugin is called for.
type asker struct {
	image credentials.Image
	// scope separates cached responses by service account. It is empty for a plugin that doesn't receive tokens.
	scope string
	// pod separates uncached responses that were made with a pod's token.
	pod string
	// token returns the service account token to send to the plugin; nil if the plugin gets none.
	token       func(context.Context) (string, error)
	annotations map[string]string
	origin      credentials.Origin
}

// newAsker returns the asker for a pod and an image according to a plugin's configuration. isAsked is false if the
// plugin isn't called for this pod.
func newAsker(ctx context.Context, wants *kubeletv1.ServiceAccountTokenAttributes, p *v1.Pod,
	objects credentials.Objects, image credentials.Image) (a asker, isAsked bool, err error) {
	a = asker{image: image, origin: credentials.Origin{Kind: credentials.FromNode}}
	if wants == nil {
		return a, true, nil
	}
	if p == nil || p.Spec.ServiceAccountName == "" {
		return a, !*wants.RequireServiceAccount, nil
	}
	name := p.Namespace + "/" + p.Spec.ServiceAccountName
	account, err := objects.ServiceAccount(ctx, p.Namespace, p.Spec.ServiceAccountName)
	if apierrors.IsNotFound(err) {
		return a, false, fmt.Errorf("the pod's service account %s doesn't exist", name)
	}
	if err != nil {
		return a, false, fmt.Errorf("read the pod's service account %s: %w", name, err)
	}
	if a.annotations, err = annotations(wants, account); err != nil {
		return a, false, fmt.Errorf("service account %s %w", name, err)
	}
	a.origin = credentials.Origin{Kind: credentials.FromServiceAccount, Namespace: account.Namespace,
		Name: account.Name, UID: string(account.UID)}
	a.pod = string(p.UID)
	a.token = func(ctx context.Context) (string, error) {
		t, err := objects.Token(ctx,
			object.TokenRequest{Namespace: p.Namespace, ServiceAccount: p.Spec.ServiceAccountName, Pod: p.Name,
				UID: p.UID, Audience: wants.ServiceAccountTokenAudience})
		if errors.Is(err, object.ErrNoTokens) {
			return "", fmt.Errorf("it needs %w; use a provider without tokenAttributes, or with "+
				"requireServiceAccount: false for pods without a service account", err)
		}
		if err != nil {
			return "", err
		}
		return t.Value(), nil
	}
	// %q quotes the parts unambiguously, and prints a map in the order of its keys.
	a.scope = fmt.Sprintf("%q %q", []string{account.Namespace, account.Name, string(account.UID)}, a.annotations)
	if wants.CacheType == kubeletv1.TokenServiceAccountTokenCacheType {
		token, err := a.token(ctx)
		if err != nil {
			return a, false, err
		}
		a.token = func(context.Context) (string, error) { return token, nil }
		a.scope += fmt.Sprintf(" %x", sha256.Sum256([]byte(token)))
	}
	return a, true, nil
}

// annotations returns the account's annotations that the plugin requires or accepts.
func annotations(wants *kubeletv1.ServiceAccountTokenAttributes,
	account *v1.ServiceAccount) (map[string]string, error) {
	var missing []string
	found := map[string]string{}
	for _, key := range wants.RequiredServiceAccountAnnotationKeys {
		value, ok := account.Annotations[key]
		if !ok {
			missing = append(missing, key)
		}
		found[key] = value
	}
	if len(missing) > 0 {
		return nil, fmt.Errorf("is missing the annotations %s, which this provider requires",
			strings.Join(missing, ", "))
	}
	for _, key := range wants.OptionalServiceAccountAnnotationKeys {
		if value, ok := account.Annotations[key]; ok {
			found[key] = value
		}
	}
	return found, nil
}
