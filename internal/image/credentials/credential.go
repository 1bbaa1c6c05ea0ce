// Package credentials collects the credentials for an image's registry from Docker configuration files, pull secrets
// and credential providers. Rules: https://kubernetes.io/docs/concepts/containers/images/#config-json.
package credentials

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// Credential is a login for a registry. It contains secrets: when printed, it shows only its origin.
type Credential struct {
	// Username and Password, or one of the tokens; all are empty for anonymous access.
	Username, Password, IdentityToken, RegistryToken string
	// ServerAddress is the registry as written in the configuration, for display. It must not be passed in the CRI's
	// field of this name: containerd ignores the credential if the field differs from the URL of the host that it
	// finally connects to, which may be another (index.docker.io).
	ServerAddress string
	// Origin is where the credential comes from.
	Origin Origin
}

// Kind is the kind of a credential's origin.
type Kind string

const (
	// FromNode is the node's Docker configuration, or a credential provider that receives no token of a pod's service
	// account: every pod of the node may use the images pulled with it.
	FromNode Kind = "node"
	// FromSecret is a pull secret.
	FromSecret Kind = "secret"
	// FromServiceAccount is a credential provider that received a token of the pod's service account.
	FromServiceAccount Kind = "serviceaccount"
)

// Origin identifies where a credential comes from. Namespace, Name and UID are those of the secret or service
// account; they are empty for the node.
type Origin struct {
	Kind                 Kind
	Namespace, Name, UID string
}

// String describes the origin for messages.
func (o Origin) String() string {
	if o.Kind == FromNode || o.Kind == "" {
		return "the node's configuration"
	}
	return fmt.Sprintf("%s %s/%s", o.Kind, o.Namespace, o.Name)
}

// String describes the credential without its secrets, so that logs don't contain them.
func (c Credential) String() string { return "credential of " + c.Origin.String() }

// GoString describes the credential without its secrets for %#v.
func (c Credential) GoString() string { return c.String() }

// MarshalJSON keeps secrets out of JSON, for example in logs.
func (c Credential) MarshalJSON() ([]byte, error) { return json.Marshal(c.String()) }

// Hash returns a keyed hash (HMAC-SHA-256) of the credential's secrets, as 64 hexadecimal digits, for records of
// pulled images (KEP-2535). Equal secrets have equal hashes, whatever their origin. The key should be random, and as
// well protected as the records: with a plain hash, a reader of the records could guess weak passwords.
func (c Credential) Hash(key []byte) string {
	h := hmac.New(sha256.New, key)
	for _, field := range []string{c.Username, c.Password, c.IdentityToken, c.RegistryToken} {
		// The length is included so that different credentials never hash the same bytes.
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(field)))
		h.Write(length[:])
		h.Write([]byte(field))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// sameSecret reports whether two credentials have the same user name and the same secrets.
func (c Credential) sameSecret(o Credential) bool {
	return c.Username == o.Username && c.Password == o.Password && c.IdentityToken == o.IdentityToken &&
		c.RegistryToken == o.RegistryToken
}
