// Package objecttest has what tests need of objects that pods refer to.
package objecttest

import "github.com/deckhand-node/deckhand/internal/pod/object"

// View is what a pod from a manifest sees of a set that stays as it is.
func View(s *object.Set) *object.Local { return object.NewLocal(func() *object.Set { return s }) }
