// Package credentials knows who may pull which image: what docker configuration
// files and pull secrets say, and which of their entries concern an image.
package credentials

import "fmt"

// Credential is one way to log in at a registry. It holds secrets: it prints as where
// it comes from, and nothing else.
type Credential struct {
	// Username and Password, or one of the tokens; all empty for none (anonymous).
	Username, Password, IdentityToken, RegistryToken string
	// ServerAddress is the registry that the entry was written for; may be empty.
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
