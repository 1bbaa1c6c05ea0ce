// Package configmap makes volumes of ConfigMaps: folders on disk with a file per key, which
// follow the ConfigMap.
package configmap

import (
	"context"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/content"
	"github.com/deckhand-node/deckhand/internal/volume/fileset"
	"github.com/deckhand-node/deckhand/internal/volume/payload"
)

// New makes the plugin for configMap volumes. It is safe for concurrent use.
func New(objects content.Objects) *fileset.Plugin {
	return fileset.New(fileset.Source{
		Name:     "kubernetes.io/configmap",
		Supports: func(s volume.Spec) bool { return s.Volume.ConfigMap != nil },
		Files: func(ctx context.Context, r volume.Request) (map[string]payload.File, error) {
			return content.ConfigMap(ctx, objects, r.Pod.Namespace, r.Spec.Volume.ConfigMap)
		},
	})
}
