package objectfiles

import (
	"context"
	"errors"
	"fmt"
	"maps"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/atomicwriter"
)

// configMapFiles returns the files of a configMap volume of a pod in this namespace.
func configMapFiles(ctx context.Context, from object.View, namespace string,
	s *v1.ConfigMapVolumeSource) (map[string]atomicwriter.File, error) {
	r := reference{kind: "ConfigMap", namespace: namespace, name: s.Name, items: s.Items, optional: s.Optional}
	data, err := configMapData(ctx, from, r)
	return r.files(data, err, s.DefaultMode)
}

// secretFiles returns the files of a secret volume of a pod in this namespace.
func secretFiles(ctx context.Context, from object.View, namespace string,
	s *v1.SecretVolumeSource) (map[string]atomicwriter.File, error) {
	r := reference{kind: "Secret", namespace: namespace, name: s.SecretName, items: s.Items, optional: s.Optional}
	data, err := secretData(ctx, from, r)
	return r.files(data, err, s.DefaultMode)
}

// projectedFiles returns the files of all sources of a projected volume. Validation refuses pods in which two sources
// list items with the same path. A source without items contributes all keys of its object: if one of them has the path
// of another file, the later source wins.
func projectedFiles(ctx context.Context, from object.View, p *v1.Pod, s *v1.ProjectedVolumeSource,
	allocatable v1.ResourceList) (map[string]atomicwriter.File, error) {
	// Report permanent errors before errors that a retry may resolve.
	for i := range s.Sources {
		if err := unsupported(ctx, from, p, &s.Sources[i]); err != nil {
			return nil, err
		}
	}
	all := map[string]atomicwriter.File{}
	for i := range s.Sources {
		files, err := projection(ctx, from, p, &s.Sources[i], s.DefaultMode, allocatable)
		if err != nil {
			return nil, err
		}
		maps.Copy(all, files)
	}
	return all, nil
}

func projection(ctx context.Context, from object.View, p *v1.Pod, s *v1.VolumeProjection, mode *int32,
	allocatable v1.ResourceList) (map[string]atomicwriter.File, error) {
	switch {
	case s.ConfigMap != nil:
		return configMapFiles(ctx, from, p.Namespace, &v1.ConfigMapVolumeSource{
			LocalObjectReference: s.ConfigMap.LocalObjectReference, Items: s.ConfigMap.Items,
			Optional: s.ConfigMap.Optional, DefaultMode: mode,
		})
	case s.Secret != nil:
		return secretFiles(ctx, from, p.Namespace, &v1.SecretVolumeSource{
			SecretName: s.Secret.Name, Items: s.Secret.Items, Optional: s.Secret.Optional, DefaultMode: mode,
		})
	case s.DownwardAPI != nil:
		return downwardFiles(p, s.DownwardAPI.Items, mode, allocatable)
	case s.ServiceAccountToken != nil:
		return tokenFile(ctx, from, p, s.ServiceAccountToken, mode)
	}
	return nil, errors.New("a source of the projected volume names nothing that this build knows")
}

// tokenFile returns a file with a token of the pod's service account. A refresh replaces it when a new token is
// due.
func tokenFile(ctx context.Context, from object.View, p *v1.Pod, s *v1.ServiceAccountTokenProjection,
	mode *int32) (map[string]atomicwriter.File, error) {
	t, err := from.Token(ctx, volume.TokenRequest(p, s.Audience, s.ExpirationSeconds))
	if err != nil {
		return nil, volume.Awaits(object.TokenKey(p), "service account %s: %w", p.Spec.ServiceAccountName, err)
	}
	files := map[string]atomicwriter.File{}
	file := atomicwriter.File{Data: []byte(t.Value()), Mode: permissions(nil, mode), UID: soleUser(p)}
	if _, grouped := volume.FSGroup(p); grouped || file.UID != nil {
		file.Mode = 0o600 // the fsGroup gets read permission from atomicwriter
	}
	if err := add(files, s.Path, file); err != nil {
		return nil, fmt.Errorf("token of service account %s: %w", p.Spec.ServiceAccountName, err)
	}
	return files, nil
}

// soleUser returns the user that all containers of the pod run as, according to the pod's spec; nil if the
// containers' users differ or one isn't set. The sole user owns the token files
// (https://kubernetes.io/docs/concepts/storage/projected-volumes/#securitycontext-interactions).
func soleUser(p *v1.Pod) *int64 {
	var common, sole *int64
	if s := p.Spec.SecurityContext; s != nil {
		common = s.RunAsUser
	}
	for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			user := common
			if s := list[i].SecurityContext; s != nil && s.RunAsUser != nil {
				user = s.RunAsUser
			}
			if user == nil || sole != nil && *sole != *user {
				return nil
			}
			sole = user
		}
	}
	return sole
}

// unsupported returns an error for a source of a projected volume that isn't available: a token for a pod without an
// API server, and types of sources that this build doesn't support.
func unsupported(ctx context.Context, from object.View, p *v1.Pod, s *v1.VolumeProjection) error {
	source, needs, instead := "", "an API server, which ", ""
	switch {
	case s.ServiceAccountToken != nil:
		t := s.ServiceAccountToken
		if _, err := from.Token(ctx, volume.TokenRequest(p, t.Audience, t.ExpirationSeconds)); !errors.Is(err,
			object.ErrNoTokens) {
			return nil
		}
		source, needs, instead = "serviceAccountToken", needs+"makes the token",
			"leave it out, and set automountServiceAccountToken to false"
	case s.ClusterTrustBundle != nil:
		source, needs, instead = "clusterTrustBundle", needs+"has the bundle", "put the certificates into a ConfigMap"
	case s.PodCertificate != nil:
		source, needs, instead = "podCertificate", "an API server and a signer, which issue the certificate",
			"put it and its key into a Secret"
	default:
		return nil
	}
	if pod.SourceOf(p) == pod.SourceAPI {
		return fmt.Errorf("source %s is %w: schedule the pod to another node (nodeSelector), or %s", source,
			volume.ErrUnsupported, instead)
	}
	return fmt.Errorf("source %s is %w: it needs %s: %s", source, volume.ErrUnsupported, needs, instead)
}

// downwardFiles returns the files of a downwardAPI volume. allocatable is the default for limits that neither the
// container nor the pod sets.
func downwardFiles(p *v1.Pod, items []v1.DownwardAPIVolumeFile, mode *int32,
	allocatable v1.ResourceList) (map[string]atomicwriter.File, error) {
	files := make(map[string]atomicwriter.File, len(items))
	for i := range items {
		item := &items[i]
		text, err := value(p, item, allocatable)
		if err == nil {
			err = add(files, item.Path, atomicwriter.File{Data: []byte(text), Mode: permissions(item.Mode, mode)})
		}
		if err != nil {
			return nil, fmt.Errorf("file %q of the downward API: %w", item.Path, err)
		}
	}
	return files, nil
}

func value(p *v1.Pod, item *v1.DownwardAPIVolumeFile, allocatable v1.ResourceList) (string, error) {
	switch {
	case item.FieldRef != nil:
		return pod.DownwardField(p, item.FieldRef.FieldPath)
	case item.ResourceFieldRef != nil:
		return pod.DownwardResource(p, item.ResourceFieldRef, "", allocatable)
	}
	return "", errors.New("it has neither a fieldRef nor a resourceFieldRef")
}
