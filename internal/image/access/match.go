package access

import (
	"slices"

	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/image/credentials"
)

// maxEntries bounds what is kept of one image, for nodes where namespaces come and go (KEP-2535).
const maxEntries = 100

// proof is what a credential amounts to here. The zero proof, and that of the node's own
// credentials, is that of a pull without.
type proof struct {
	kind    credentials.Kind
	secret  v1beta1.ImagePullSecret
	account v1beta1.ImagePullServiceAccount
}

// proofOf is the proof by a credential, nil for none. The format of records names SHA-256
// but not what goes into it, so that a hash of the kubelet's doesn't match; where the
// secret comes from does then, and the hash is replaced.
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

// shown reports whether one of the credentials is known to open the image, by what it
// contains or by the secret or service account it comes from (which may have been given
// another password since). learned is what is worth keeping instead of known.
func shown(known v1beta1.ImagePullCredentials, list []proof) (learned v1beta1.ImagePullCredentials, ok bool) {
	if known.NodePodsAccessible {
		return known, true
	}
	for _, p := range list {
		switch p.kind {
		case credentials.FromServiceAccount:
			// Without a UID nothing tells an account from an earlier one of that name.
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
	// Without a UID nothing tells a changed secret from another one of that name.
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

// with adds the proof by which the image was pulled.
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

// withSecret puts the secret in, in place of what was known of it before.
func withSecret(known v1beta1.ImagePullCredentials, s v1beta1.ImagePullSecret) v1beta1.ImagePullCredentials {
	secrets := slices.DeleteFunc(slices.Clone(known.KubernetesSecrets), func(k v1beta1.ImagePullSecret) bool {
		return samePlace(k, s)
	})
	known.KubernetesSecrets = append(newest(secrets), s)
	return known
}

// newest drops the oldest, if there are too many,.
func newest[T any](list []T) []T { return list[max(0, len(list)-(maxEntries-1)):] }

func samePlace(a, b v1beta1.ImagePullSecret) bool {
	return a.UID == b.UID && a.Namespace == b.Namespace && a.Name == b.Name
}
