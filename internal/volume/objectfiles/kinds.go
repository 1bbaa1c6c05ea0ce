package objectfiles

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/atomicwriter"
)

// NewConfigMap returns the plugin for configMap volumes: directories on disk with a file per key, which are updated
// when the ConfigMap changes. It is safe for concurrent use.
func NewConfigMap() *Plugin {
	return newPlugin(source{
		Name:     "kubernetes.io/configmap",
		Supports: func(s volume.Spec) bool { return s.Volume.ConfigMap != nil },
		Files: func(ctx context.Context, r volume.Request) (map[string]atomicwriter.File, error) {
			return configMapFiles(ctx, r.Objects, r.Pod.Namespace, r.Spec.Volume.ConfigMap)
		},
	})
}

// NewSecret returns the plugin for secret volumes: directories in memory with a file per key, which are updated when
// the Secret changes. It is safe for concurrent use.
func NewSecret() *Plugin {
	return newPlugin(source{
		Name:     "kubernetes.io/secret",
		Supports: func(s volume.Spec) bool { return s.Volume.Secret != nil },
		Files: func(ctx context.Context, r volume.Request) (map[string]atomicwriter.File, error) {
			return secretFiles(ctx, r.Objects, r.Pod.Namespace, r.Spec.Volume.Secret)
		},
		Memory: func(volume.Spec) int { return 1 },
	})
}

// NewDownwardAPI returns the plugin for downwardAPI volumes: directories in memory, which are updated when the pod's
// labels, annotations or resources change. allocatable returns the node's allocatable resources; it is called at
// each mount and refresh. The plugin is safe for concurrent use if allocatable is.
func NewDownwardAPI(allocatable func() v1.ResourceList) *Plugin {
	return newPlugin(source{
		Name:     "kubernetes.io/downward-api",
		Supports: func(s volume.Spec) bool { return s.Volume.DownwardAPI != nil },
		Files: func(_ context.Context, r volume.Request) (map[string]atomicwriter.File, error) {
			s := r.Spec.Volume.DownwardAPI
			return downwardFiles(r.Pod, s.Items, s.DefaultMode, allocatable())
		},
		Memory: func(volume.Spec) int { return 1 },
	})
}

// NewProjected returns the plugin for projected volumes: directories in memory, which are updated when one of their
// sources changes. allocatable returns the node's allocatable resources, as for NewDownwardAPI.
func NewProjected(allocatable func() v1.ResourceList) *Plugin {
	return newPlugin(source{
		Name:     "kubernetes.io/projected",
		Supports: func(s volume.Spec) bool { return s.Volume.Projected != nil },
		Files: func(ctx context.Context, r volume.Request) (map[string]atomicwriter.File, error) {
			return projectedFiles(ctx, r.Objects, r.Pod, r.Spec.Volume.Projected, allocatable())
		},
		Memory: func(s volume.Spec) int { return len(s.Volume.Projected.Sources) },
	})
}
