package access

import (
	"slices"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

// maxEntries limits the credentials recorded per image, for nodes with many short-lived namespaces (KEP-2535).
const maxEntries = 100

// proof identifies a credential in records. The proof of the node's own credentials contains only the kind, and the
// proof of a pull without credentials is the zero proof: both make an image accessible to all pods.
type proof struct {
	kind    credentials.Kind
	secret  v1beta1.ImagePullSecret
	account v1beta1.ImagePullServiceAccount
}

// proofOf returns the proof of a credential; c is nil for a pull without credentials. The record format specifies
// SHA-256, but not its input, so the kubelet's hashes don't match ours. In the kubelet's records, a secret is
// therefore recognized by its UID, namespace and name, and its hash is replaced.
func proofOf(c *credentials.Credential, key []byte) proof {
	if c == nil {
		return proof{}
	}
	o := c.Origin
	p := proof{kind: o.Kind}
	switch o.Kind {
	case credentials.FromSecret:
		p.secret = v1beta1.ImagePullSecret{UID: o.UID, Namespace: o.Namespace, Name: o.Name,
			CredentialHash: c.Hash(key)}
	case credentials.FromServiceAccount:
		p.account = v1beta1.ImagePullServiceAccount{UID: o.UID, Namespace: o.Namespace, Name: o.Name}
	}
	return p
}

// shown reports whether the record gives one of the credentials access to the image: the record has either the
// credential's hash, or the secret or service account of its origin (whose password may have changed since). known is
// the record's entry for the image; learned is the entry that has to replace it.
func shown(known v1beta1.ImagePullCredentials, list []proof) (learned v1beta1.ImagePullCredentials, ok bool) {
	if known.NodePodsAccessible {
		return known, true
	}
	for _, p := range list {
		switch p.kind {
		case credentials.FromServiceAccount:
			// Without a UID, the account may be another one that was created later with the same name.
			if p.account.UID != "" && slices.Contains(known.KubernetesServiceAccounts, p.account) {
				return known, true
			}
		case credentials.FromSecret:
			if learned, ok := secretShown(known, p.secret); ok {
				return learned, true
			}
		}
	}
	return known, false
}

func secretShown(known v1beta1.ImagePullCredentials,
	s v1beta1.ImagePullSecret) (learned v1beta1.ImagePullCredentials, ok bool) {
	if slices.Contains(known.KubernetesSecrets, s) {
		return known, true
	}
	here := slices.IndexFunc(known.KubernetesSecrets, func(k v1beta1.ImagePullSecret) bool { return samePlace(k, s) })
	// Without a UID, the secret may be another one that was created later with the same name.
	if here >= 0 && s.UID != "" {
		return withSecret(known, s), true
	}
	if !slices.ContainsFunc(known.KubernetesSecrets, func(k v1beta1.ImagePullSecret) bool {
		return k.CredentialHash == s.CredentialHash
	}) {
		return known, false
	}
	if here < 0 && len(known.KubernetesSecrets) >= maxEntries {
		return known, true
	}
	return withSecret(known, s), true
}

// with returns known with the proof of the credential that pulled the image added.
func with(known v1beta1.ImagePullCredentials, p proof) v1beta1.ImagePullCredentials {
	switch {
	case known.NodePodsAccessible:
	case p.kind == credentials.FromSecret:
		return withSecret(known, p.secret)
	case p.kind == credentials.FromServiceAccount:
		if p.account.UID != "" {
			accounts := slices.DeleteFunc(slices.Clone(known.KubernetesServiceAccounts),
				func(a v1beta1.ImagePullServiceAccount) bool { return a == p.account })
			known.KubernetesServiceAccounts = append(newest(accounts), p.account)
		}
	default:
		return v1beta1.ImagePullCredentials{NodePodsAccessible: true}
	}
	return known
}

// withSecret adds the secret, and removes its previous entry.
func withSecret(known v1beta1.ImagePullCredentials, s v1beta1.ImagePullSecret) v1beta1.ImagePullCredentials {
	secrets := slices.DeleteFunc(slices.Clone(known.KubernetesSecrets), func(k v1beta1.ImagePullSecret) bool {
		return samePlace(k, s)
	})
	known.KubernetesSecrets = append(newest(secrets), s)
	return known
}

// newest drops the oldest entries to make room for one more.
func newest[T any](list []T) []T { return list[max(0, len(list)-(maxEntries-1)):] }

func samePlace(a, b v1beta1.ImagePullSecret) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}
