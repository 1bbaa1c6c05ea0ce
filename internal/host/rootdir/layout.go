// Package rootdir names and creates the directories below --root-dir: the kubelet's directories, which plugins, CSI
// drivers and monitoring expect by these names (Layout), and those of the embedded runtime (Runtime). Each agent
// has its own root directory, so that two agents share nothing on disk.
//
// The names are documented (https://kubernetes.io/docs/reference/node/kubelet-files); the modes are those of
// kubelet 1.36. Directories that only deckhand has (journal, image records, ...) are named and created by the
// packages that own them.
package rootdir

import (
	"fmt"
	"io/fs"
	"path/filepath"
)

// Layout has the paths of the kubelet's directories. Both fields are absolute paths.
type Layout struct {
	// Root is --root-dir.
	Root string
	// Certs is --cert-dir: the directory of client and serving certificates with their keys.
	Certs string
}

// New returns the layout after checking the paths. An empty certDir means the directory pki in root.
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

// Plugins is the directory in which volume plugins and DRA drivers keep their sockets and global mounts.
func (l Layout) Plugins() string { return filepath.Join(l.Root, plugins) }

// PluginsRegistry is the directory in which plugins create the sockets by which they register.
func (l Layout) PluginsRegistry() string { return filepath.Join(l.Root, pluginsRegistry) }

// PodResources has the socket of the pod resources API.
func (l Layout) PodResources() string { return filepath.Join(l.Root, podResources) }

// DevicePlugins has the socket at which device plugins register, and the plugins' own sockets.
func (l Layout) DevicePlugins() string { return filepath.Join(l.Root, devicePlugins) }

// Checkpoints holds the records that outlive the agent.
func (l Layout) Checkpoints() string { return filepath.Join(l.Root, checkpoints) }

const (
	// rootMode lets all users traverse the root directory, but not list it. With the embedded runtime, containers with
	// a user namespace reach their root file systems through it (userns.Reach), and a runtime's socket may be in it.
	// The kubelet uses 0750.
	rootMode fs.FileMode = 0o751
	// certsMode is the mode that client-go's certificate store uses for its directory. Files with keys have 0600.
	certsMode fs.FileMode = 0o755
)

// below lists the directories in Root with their modes: 0700 for those that contain Secrets.
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
