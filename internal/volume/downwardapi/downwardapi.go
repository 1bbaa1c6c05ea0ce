// Package downwardapi makes volumes that show a pod its own fields and resources: folders
// in memory, which follow the pod's labels, annotations and resources.
package downwardapi

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/content"
	"github.com/deckhand-node/deckhand/internal/volume/fileset"
	"github.com/deckhand-node/deckhand/internal/volume/payload"
)

// New makes the plugin for downwardAPI volumes. allocatable is what the node has for pods;
// it is asked at each mount and refresh. The plugin is safe for concurrent use if allocatable is.
func New(allocatable func() v1.ResourceList) *fileset.Plugin {
	return fileset.New(fileset.Source{
		Name:     "kubernetes.io/downward-api",
		Supports: func(s volume.Spec) bool { return s.Volume.DownwardAPI != nil },
		Files: func(_ context.Context, r volume.Request) (map[string]payload.File, error) {
			return content.DownwardAPI(r.Pod, r.Spec.Volume.DownwardAPI, allocatable())
		},
		Memory: func(volume.Spec) int { return 1 },
	})
}
