// Package projected makes volumes that show several sources in one folder, which is in
// memory and follows all of them.
package projected

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/content"
	"github.com/deckhand-node/deckhand/internal/volume/fileset"
	"github.com/deckhand-node/deckhand/internal/volume/payload"
)

// New makes the plugin for projected volumes. allocatable is what the node has for pods;
// it is asked at each mount and refresh. The plugin is safe for concurrent use if allocatable is.
func New(objects content.Objects, allocatable func() v1.ResourceList) *fileset.Plugin {
	return fileset.New(fileset.Source{
		Name:     "kubernetes.io/projected",
		Supports: func(s volume.Spec) bool { return s.Volume.Projected != nil },
		Files: func(ctx context.Context, r volume.Request) (map[string]payload.File, error) {
			return content.Projected(ctx, objects, r.Pod, r.Spec.Volume.Projected, allocatable())
		},
		Memory: func(s volume.Spec) int { return len(s.Volume.Projected.Sources) },
	})
}
