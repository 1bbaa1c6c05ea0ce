package embedded

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded/cni"
)

// cniDirs are the directories in which distributions install CNI plugins.
var cniDirs = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}

// Programs are the absolute paths of the runtime's programs.
type Programs struct {
	Containerd, Shim, Runc string
	// CNIDirs are the directories of the CNI plugins, each plugin in one of them.
	CNIDirs []string
	// PauseArchive is the archive with the default pause image, in a directory images beside the programs; empty if
	// it is missing.
	PauseArchive string
	// Path is the PATH of containerd and its shims.
	Path string
}

// FindPrograms searches the given directories, then PATH; for CNI plugins it searches their usual directories
// instead of PATH, where bridge is another program (iproute2's). The error names all missing programs.
func FindPrograms(binDirs []string) (Programs, error) {
	dirs := make([]string, 0, len(binDirs))
	for _, d := range binDirs {
		abs, err := filepath.Abs(d)
		if err != nil {
			return Programs{}, fmt.Errorf("directory of programs %q: %w", d, err)
		}
		dirs = append(dirs, abs)
	}
	path := slices.Clone(dirs)
	for _, d := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(d) {
			path = append(path, d)
		}
	}
	// containerd and the CNI plugins also run netfilter programs and modprobe. These are in the directories below,
	// which a user's PATH may not include.
	path = append(path, "/usr/sbin", "/sbin")
	p := Programs{Path: strings.Join(path, string(os.PathListSeparator)), PauseArchive: findArchive(dirs)}
	missing := map[string]string{} // value: the directories that were searched
	for name, to := range map[string]*string{"containerd": &p.Containerd, "containerd-shim-runc-v2": &p.Shim,
		"runc": &p.Runc} {
		if *to = find(name, path); *to == "" {
			missing[name] = searched(dirs, "PATH")
		}
	}
	for _, name := range cni.Plugins() {
		found := find(name, slices.Concat(dirs, cniDirs))
		if found == "" {
			missing["the CNI plugin "+name] = searched(dirs, cniDirs...)
			continue
		}
		if dir := filepath.Dir(found); !slices.Contains(p.CNIDirs, dir) {
			p.CNIDirs = append(p.CNIDirs, dir)
		}
	}
	return p, missingError(missing)
}

func searched(dirs []string, more ...string) string {
	list := slices.Concat(dirs, more)
	last := len(list) - 1
	if last == 0 {
		return list[last]
	}
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

func missingError(missing map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		errs = append(errs, fmt.Errorf("%s: not found in %s; `make build` makes it", name, missing[name]))
	}
	return errors.Join(errs...)
}

func find(name string, dirs []string) string {
	for _, dir := range dirs {
		path := filepath.Join(dir, name)
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	return ""
}

func findArchive(dirs []string) string {
	for _, dir := range dirs {
		path := filepath.Join(dir, "images", "pause.tar")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// Plugin returns the path of a CNI plugin, empty if it is missing.
func (p Programs) Plugin(name string) string { return find(name, p.CNIDirs) }
