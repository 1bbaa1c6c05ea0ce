// Package rootdir names the directories below --root-dir, and makes them: the kubelet's, which plugins, CSI drivers and
// monitoring find by these names (Layout), and the embedded runtime's (Runtime). There is one root directory per agent,
// so that two agents share nothing on disk.
//
// The kubelet's names are documented (https://kubernetes.io/docs/reference/node/kubelet-files); the modes are those
// that a kubelet 1.36 gives them. Directories of deckhand alone (journal, image records, ...) are named and made by the
// packages that own them.
package rootdir

import (
	"fmt"
	"io/fs"
	"path/filepath"
)

// Layout is where the directories are. Both paths are absolute.
type Layout struct {
	// Root is --root-dir.
	Root string
	// Certs is --cert-dir: client and serving certificates with their keys.
	Certs string
}

// New checks the paths. An empty certDir is pki below root.
func New(root, certDir string) (Layout, error) {
	if certDir == "" {
		certDir = filepath.Join(root, "pki")
	}
	for _, c := range [...]struct{ flag, path string }{{"root-dir", root}, {"cert-dir", certDir}} {
		if !filepath.IsAbs(c.path) {
			return Layout{}, fmt.Errorf("--%s %q: has to be an absolute path", c.flag, c.path)
		}
		if filepath.Clean(c.path) == "/" {
			return Layout{}, fmt.Errorf("--%s: can't be /", c.flag)
		}
	}
	return Layout{Root: filepath.Clean(root), Certs: filepath.Clean(certDir)}, nil
}

// Names below Root.
const (
	pods            = "pods"
	plugins         = "plugins"
	pluginsRegistry = "plugins_registry"
	podResources    = "pod-resources"
	devicePlugins   = "device-plugins"
	checkpoints     = "checkpoints"
)

// Pods has one directory per pod, named by its UID.
func (l Layout) Pods() string { return filepath.Join(l.Root, pods) }

// Plugins is where volume plugins and DRA drivers keep their sockets and global mounts.
func (l Layout) Plugins() string { return filepath.Join(l.Root, plugins) }

// PluginsRegistry is where plugins announce themselves by a socket.
func (l Layout) PluginsRegistry() string { return filepath.Join(l.Root, pluginsRegistry) }

// PodResources has the socket of the pod resources API.
func (l Layout) PodResources() string { return filepath.Join(l.Root, podResources) }

// DevicePlugins has the socket that device plugins register at, and their own.
func (l Layout) DevicePlugins() string { return filepath.Join(l.Root, devicePlugins) }

// Checkpoints holds the records that outlive the agent.
func (l Layout) Checkpoints() string { return filepath.Join(l.Root, checkpoints) }

const (
	// rootMode lets everybody pass through, but not look around: containers with users
	// of their own reach their root file systems through it with the embedded runtime
	// (userns.Reach), and a runtime's socket may be there. The kubelet's is 0750.
	rootMode fs.FileMode = 0o751
	// certsMode is that of client-go's certificate store. Keys have 0600.
	certsMode fs.FileMode = 0o755
)

// below are the directories in Root, with their modes: 0700 where Secrets are kept.
var below = [...]struct {
	name string
	mode fs.FileMode
}{
	{pods, 0o750},
	{plugins, 0o750},
	{pluginsRegistry, 0o750},
	{podResources, 0o750},
	{devicePlugins, 0o750},
	{checkpoints, 0o700},
}
