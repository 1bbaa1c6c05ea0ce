package access

import "github.com/deckhand-node/deckhand/internal/credentials"

// Unchecked lets everybody use every image and remembers nothing: for an agent whose
// feature gate KubeletEnsureSecretPulledImages is off.
type Unchecked struct{}

// MayUse is always true.
func (Unchecked) MayUse(string, string, func() ([]credentials.Credential, error)) (bool, error) {
	return true, nil
}

// Intend does nothing.
func (Unchecked) Intend(string) error { return nil }

// Pulled does nothing.
func (Unchecked) Pulled(string, string, *credentials.Credential) error { return nil }

// NotPulled does nothing.
func (Unchecked) NotPulled(string, bool) {}
