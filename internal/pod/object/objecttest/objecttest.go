// Package objecttest has helpers for tests with objects that pods refer to.
package objecttest

import "github.com/deckhand-node/deckhand/internal/pod/object"

// View returns the View that pods from manifests have of a set that doesn't change.
func View(s *object.Set) *object.Local { return object.NewLocal(func() *object.Set { return s }) }
