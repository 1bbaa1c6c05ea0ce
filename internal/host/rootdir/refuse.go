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

// system lists directories of the operating system, which can't be a root directory, even if they are empty
// (hier(7)).
var system = []string{"/", "/bin", "/boot", "/dev", "/etc", "/home", "/lib", "/lib32", "/lib64", "/libx32", "/media",
	"/mnt", "/opt", "/proc",
	"/root", "/run", "/sbin", "/srv", "/sys", "/tmp", "/usr", "/usr/bin", "/usr/lib", "/usr/libexec", "/usr/local",
	"/usr/local/bin", "/usr/sbin", "/usr/share", "/usr/src",
	"/var", "/var/cache", "/var/lib", "/var/local", "/var/log", "/var/mail", "/var/opt", "/var/run", "/var/spool",
	"/var/tmp"}

// virtual lists the prefixes of paths on virtual file systems, which can't keep an agent's files across a reboot.
var virtual = []string{"/dev/", "/proc/", "/sys/"}

// IsSystem reports whether path is a directory of the operating system, or a symbolic link to one.
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

// harmless lists files that may be in an otherwise unused directory: images that an administrator provides for a new
// agent, the lock file of a command that only checked the directory, and the lost+found of a new file system.
var harmless = []string{"images", lockfile.Name, "lost+found"}

// prepared lists further files that an administrator or kubeadm may create in the root directory before the agent's
// first start.
var prepared = []string{".dockercfg", "bootstrap-kubeconfig", "config.json", "config.yaml", "containerd",
	"instance-config.yaml", "kubeadm-flags.env", "kubeconfig", "pki", "seccomp"}

// Refuse returns an error if root can't be an agent's root directory: a directory of the operating system, or one
// with files of other programs. It accepts a directory that is empty, doesn't exist yet, or was used by deckhand or
// a kubelet. It changes nothing.
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
