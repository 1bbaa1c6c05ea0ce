// Package secret makes volumes of Secrets: folders in memory with a file per key, which
// follow the Secret. Nothing of it touches a disk.
package secret

import (
	"context"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/content"
	"github.com/deckhand-node/deckhand/internal/volume/fileset"
	"github.com/deckhand-node/deckhand/internal/volume/payload"
)

// New makes the plugin for secret volumes. It is safe for concurrent use.
func New(objects content.Objects) *fileset.Plugin {
	return fileset.New(fileset.Source{
		Name:     "kubernetes.io/secret",
		Supports: func(s volume.Spec) bool { return s.Volume.Secret != nil },
		Files: func(ctx context.Context, r volume.Request) (map[string]payload.File, error) {
			return content.Secret(ctx, objects, r.Pod.Namespace, r.Spec.Volume.Secret)
		},
		Memory: func(volume.Spec) int { return 1 },
	})
}
