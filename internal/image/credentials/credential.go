// Package credentials knows who may pull which image: what docker configuration
// files, pull secrets and credential providers say, and which of their entries
// concern an image. Rules: https://kubernetes.io/docs/concepts/containers/images/#config-json.
package credentials

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Credential is one way to log in at a registry. It holds secrets: it prints as where
// it comes from, and nothing else.
type Credential struct {
	// Username and Password, or one of the tokens; all empty for none (anonymous).
	Username, Password, IdentityToken, RegistryToken string
	// ServerAddress is the registry that the entry was written for, as written there, to
	// be shown. It isn't for the CRI's field of this name: containerd wants an URL of the
	// host that it asks in the end, which may be another (index.docker.io), and drops the
	// credential if it isn't that.
	ServerAddress string
	// Origin says where it comes from.
	Origin Origin
}

// Kind is the kind of thing a credential comes from.
type Kind string

const (
	// FromNode is the node's own docker configuration or a credential provider that
	// doesn't look at the pod: every pod of the node may use what it pulled.
	FromNode Kind = "node"
	// FromSecret is a pull secret.
	FromSecret Kind = "secret"
	// FromServiceAccount is a credential provider that was given a token of the pod's service account.
	FromServiceAccount Kind = "serviceaccount"
)

// Origin identifies where a credential comes from. Namespace, Name and UID are the
// secret's or the service account's; empty for the node.
type Origin struct {
	Kind                 Kind
	Namespace, Name, UID string
}

// String says where the credential comes from, for messages.
func (o Origin) String() string {
	if o.Kind == FromNode || o.Kind == "" {
		return "the node's configuration"
	}
	return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name)
}

// String keeps secrets out of logs.
func (c Credential) String() string { return "credential of " + c.Origin.String() }

// GoString keeps them out of %#v as well.
func (c Credential) GoString() string { return c.String() }

// MarshalJSON keeps them out of whatever writes JSON, such as a log or a transcript.
func (c Credential) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// Hash is a fingerprint of what is secret in the credential, for records of who
// pulled an image (KEP-2535): equal for equal secrets, wherever they come from.
// Nobody can find the secret from it without the key, which should be random and
// as well kept as the records; a plain hash would tell a weak password to whoever
// reads a record and tries. 64 hexadecimal digits.
func (c Credential) Hash(key []byte) string {
	h := hmac.New(sha256.New, key)
	for _, field := range []string{c.Username, c.Password, c.IdentityToken, c.RegistryToken} {
		// With its length, so that no two credentials are the same text.
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(field)))
		h.Write(length[:])
		h.Write([]byte(field))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// sameSecret reports whether both log in as the same with the same.
func (c Credential) sameSecret(o Credential) bool {
	return c.Username == o.Username && c.Password == o.Password && c.IdentityToken == o.IdentityToken &&
		c.RegistryToken == o.RegistryToken
}
