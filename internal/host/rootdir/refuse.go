package rootdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deckhand-node/deckhand/internal/host/lockfile"
)

// system are directories that no agent may have for its own, empty or not (hier(7)).
var system = []string{"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/media",
	"/mnt", "/opt", "/proc",
	"/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/libexec", "/usr/local",
	"/usr/local/bin", "/usr/sbin", "/usr/share", "/usr/src",
	"/var", "/var/cache", "/var/lib", "/var/local", "/var/log", "/var/mail", "/var/opt", "/var/run", "/var/spool",
	"/var/tmp"}

// below these nothing lasts, or is a file as others are.
var virtual = []string{"/dev/", "/proc/", "/sys/"}

// IsSystem reports whether a path is that of a directory of the system, also by way of a link.
func IsSystem(path string) bool {
	paths := []string{filepath.Clean(path)}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		paths = append(paths, real)
	}
	return slices.ContainsFunc(paths, func(p string) bool {
		return slices.Contains(system, p) ||
			slices.ContainsFunc(virtual, func(v string) bool { return strings.HasPrefix(p, v) })
	})
}

// harmless are the files that may be in a directory that is otherwise unused: images that a person provides for a new
// agent, the lock of a process that only checked, a new disk's own directory.
var harmless = []string{"images", lockfile.Name, "lost+found"}

// prepared are the files that a person, or kubeadm, may also have put into the root directory of a new agent.
var prepared = []string{".dockercfg", "bootstrap-kubeconfig", "config.json", "config.yaml", "containerd",
	"instance-config.yaml", "kubeadm-flags.env", "kubeconfig", "pki", "seccomp"}

// Refuse returns an error for a root directory that isn't an agent's: a directory of the system, or one with files of
// somebody else. It takes one that is empty or isn't there yet, and those that a deckhand or a kubelet has used. It
// changes nothing.
func Refuse(root string) error {
	if IsSystem(root) {
		return fmt.Errorf("--root-dir %s: that is a directory of the system, and the agent needs one for itself, "+
			"such as %s", root, filepath.Join(root, "deckhand"))
	}
	entries, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--root-dir %s: %w", root, err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == name })
	}
	if has(marker) || has(Record) || has(pods) &&
		slices.ContainsFunc([]string{plugins, pluginsRegistry, podResources, devicePlugins, checkpoints,
			"cpu_manager_state"}, has) {
		return nil
	}
	for _, e := range entries {
		if !slices.Contains(harmless, e.Name()) && !slices.Contains(prepared, e.Name()) {
			return fmt.Errorf("--root-dir %s: it isn't empty (it has %s), and neither deckhand nor a kubelet has "+
				"used it: choose a new directory, such as %s", root, e.Name(), filepath.Join(root, "deckhand"))
		}
	}
	return nil
}
