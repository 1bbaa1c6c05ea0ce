package csi

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
)

// Keys of the volume_context (API: CSIDriverSpec.podInfoOnMount, tokenRequests).
const (
	infoPrefix = "csi.storage.k8s.io/"
	tokensKey  = infoPrefix + "serviceAccount.tokens"
)

// describedBy returns the CSIDriver object of a volume's driver, an empty one if the driver needs none, and fails if
// the driver isn't for such volumes.
func describedBy(ctx context.Context, from object.View, s *source) (*storagev1.CSIDriver, error) {
	o := pod.Object{Kind: string(object.CSIDriver), Name: s.driver}
	d, err := from.CSIDriver(ctx, s.driver)
	switch {
	case apierrors.IsNotFound(err) && s.inline():
		return nil, volume.Awaits(o, "volume mode %q not supported by driver %s (no CSIDriver object): it has to have "+
			"one that lists %[1]s in volumeLifecycleModes", s.lifecycle, s.driver)
	case apierrors.IsNotFound(err) && !errors.Is(err, object.ErrRefused):
		d = &storagev1.CSIDriver{}
	case err != nil:
		return nil, volume.Awaits(o, "CSIDriver %s: %w", s.driver, err)
	}
	modes := d.Spec.VolumeLifecycleModes
	if len(modes) == 0 {
		modes = []storagev1.VolumeLifecycleMode{storagev1.VolumeLifecyclePersistent}
	}
	switch {
	case !slices.Contains(modes, s.lifecycle):
		return nil, volume.Awaits(o, "volume mode %q not supported by driver %s: its CSIDriver object doesn't list it "+
			"in volumeLifecycleModes", s.lifecycle, s.driver)
	}
	return d, nil
}

// secretsOf returns the values of a Secret that a driver gets; nil without a reference.
func secretsOf(ctx context.Context, from object.View, ref *v1.SecretReference,
	field string) (map[string]string, error) {
	if ref == nil {
		return nil, nil
	}
	secret, err := from.Secret(ctx, ref.Namespace, ref.Name)
	if err != nil {
		o := pod.Object{Kind: string(object.Secret), Namespace: ref.Namespace, Name: ref.Name}
		return nil, volume.Awaits(o, "%s (%s): %w", o, field, err)
	}
	values := make(map[string]string, len(secret.Data)+1)
	for key, value := range secret.Data {
		values[key] = string(value)
	}
	return values, nil
}

// publishing has the arguments of NodePublishVolume, but for those that depend on the driver's capabilities. The values
// of secrets, and the tokens in either map, are secret.
type publishing struct {
	source
	object           *storagev1.CSIDriver
	attachment       attachment
	context, secrets map[string]string
	// hidden are texts that must not be in messages.
	hidden []string
}

// gather reads the pod information, the attachment, tokens and secrets for the driver.
func (p Plugin) gather(ctx context.Context, r volume.Request) (publishing, error) {
	s, err := sourceOf(r.Pod, r.Spec)
	if err != nil {
		return publishing{}, err
	}
	g := publishing{source: s, context: map[string]string{}}
	if g.object, err = describedBy(ctx, r.Objects, &s); err != nil {
		return publishing{}, err
	}
	if g.attachment, err = p.attachment(ctx, r.Objects, g.object, &s,
		user{r.Pod.Spec.NodeName, p.Dir(s.key()), r.InUse}); err != nil {
		return publishing{}, err
	}
	maps.Copy(g.context, s.attributes)
	if ptr.Deref(g.object.Spec.PodInfoOnMount, false) {
		maps.Copy(g.context, podInfo(r.Pod, s.inline()))
	}
	if g.secrets, err = secretsOf(ctx, r.Objects, s.publish, "nodePublishSecretRef"); err != nil {
		return publishing{}, err
	}
	g.hidden = slices.AppendSeq(g.attachment.hidden(), maps.Values(g.secrets))
	tokens, hidden, err := tokensOf(ctx, r.Objects, r.Pod, g.object)
	if err != nil || tokens == "" {
		return g, err
	}
	g.hidden = append(g.hidden, hidden...)
	if ptr.Deref(g.object.Spec.ServiceAccountTokenInSecrets, false) {
		if g.secrets == nil {
			g.secrets = map[string]string{}
		}
		g.secrets[tokensKey] = tokens
	} else {
		g.context[tokensKey] = tokens
	}
	return g, nil
}

func podInfo(p *v1.Pod, inline bool) map[string]string {
	return map[string]string{
		infoPrefix + "pod.name": p.Name, infoPrefix + "pod.namespace": p.Namespace,
		infoPrefix + "pod.uid": string(p.UID), infoPrefix + "serviceAccount.name": p.Spec.ServiceAccountName,
		infoPrefix + "ephemeral": strconv.FormatBool(inline),
	}
}

// issued is a token as drivers get it.
type issued struct {
	Token   string      `json:"token"`
	Expires metav1.Time `json:"expirationTimestamp"`
}

// tokensOf returns the tokens that the driver wants of the pod's service account, as a JSON object by audience (text,
// empty if it wants none) and as a list.
func tokensOf(ctx context.Context, from object.View, p *v1.Pod, d *storagev1.CSIDriver) (text string, list []string,
	err error) {
	if len(d.Spec.TokenRequests) == 0 {
		return "", nil, nil
	}
	tokens := map[string]issued{}
	for _, r := range d.Spec.TokenRequests {
		t, err := from.Token(ctx, volume.TokenRequest(p, r.Audience, r.ExpirationSeconds))
		if err != nil {
			return "", nil, volume.Awaits(object.TokenKey(p), "a token for the CSI driver %s (audience %q) of service "+
				"account %s: %w", d.Name, r.Audience, p.Spec.ServiceAccountName, err)
		}
		tokens[r.Audience] = issued{t.Value(), metav1.Time{Time: t.Until.UTC().Truncate(time.Second)}}
		list = append(list, t.Value())
	}
	data, err := json.Marshal(tokens)
	return string(data), list, err
}
