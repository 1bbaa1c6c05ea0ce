package rootdir

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxSocketPath is the maximum length of the path of a socket on which containerd listens. It refuses longer ones,
// though Linux takes 107 characters (unix(7)).
const maxSocketPath = 104

// runBase has a directory for each root directory, for sockets whose paths have to be short.
const runBase = "/run/deckhand"

// Runtime has the paths of the embedded runtime under one root directory. Root is absolute and clean.
type Runtime struct{ Root string }

// NewRuntime returns the Runtime of root, after checking that containerd, runc and overlayfs can use such a path.
func NewRuntime(root string) (Runtime, error) {
	switch {
	case !filepath.IsAbs(root):
		return Runtime{}, fmt.Errorf("root directory %q: has to be an absolute path", root)
	case filepath.Clean(root) == "/":
		return Runtime{}, errors.New("root directory: can't be /")
	}
	for _, r := range root {
		if r < ' ' || r == 0x7f || r == '\ufffd' {
			return Runtime{}, fmt.Errorf("root directory %q: has a control character or isn't UTF-8", root)
		}
	}
	// runc and overlayfs use these characters as separators in lists of paths.
	if i := strings.IndexAny(root, `:,\`); i >= 0 {
		return Runtime{}, fmt.Errorf("root directory %q: overlayfs can't mount paths with %q in them", root, root[i])
	}
	return Runtime{Root: filepath.Clean(root)}, nil
}

// marker is the base name of Marker, Record that of the install record (see package agent/reset).
const (
	marker = ".deckhand"
	Record = "footprint.json"
)

// Marker is a file that exists if deckhand created the root directory, and may therefore remove it.
func (l Runtime) Marker() string { return filepath.Join(l.Root, marker) }

// Containerd is the directory of all of containerd's files.
func (l Runtime) Containerd() string { return filepath.Join(l.Root, "containerd") }

// Config is containerd's generated configuration.
func (l Runtime) Config() string { return filepath.Join(l.Containerd(), "config.toml") }

// Log is containerd's log file.
func (l Runtime) Log() string { return filepath.Join(l.Containerd(), "containerd.log") }

// Store is containerd's persistent root: images, snapshots, metadata.
func (l Runtime) Store() string { return filepath.Join(l.Containerd(), "root") }

// State is containerd's state directory. Its content is invalid after a reboot.
func (l Runtime) State() string { return filepath.Join(l.Containerd(), "state") }

// RuncRoot is where runc keeps the state of containers.
func (l Runtime) RuncRoot() string { return filepath.Join(l.State(), "runc") }

// Paths below State and Store: the directories in which containerd's task service and its CRI plugin keep the state
// of each container or sandbox, under its ID.
const (
	tasks     = "io.containerd.runtime.v2.task/k8s.io"
	sandboxes = "io.containerd.grpc.v1.cri/sandboxes"
)

// Bundles has one directory per running container: its OCI bundle, in which its root file system is mounted.
func (l Runtime) Bundles() string { return filepath.Join(l.State(), tasks) }

// Sandboxes has one directory per sandbox, with the files that the containers of the pod share.
func (l Runtime) Sandboxes() string { return filepath.Join(l.Store(), sandboxes) }

// RuncContainers has one directory per running container, with runc's record of the container.
func (l Runtime) RuncContainers() string { return filepath.Join(l.RuncRoot(), "k8s.io") }

// RuncState is the file of runc's record of a container.
func (l Runtime) RuncState(id string) string {
	return filepath.Join(l.RuncContainers(), id, "state.json")
}

// Of returns all directories of the container or sandbox with this ID.
func (l Runtime) Of(id string) []string {
	dirs := []string{l.Bundles(), l.RuncContainers(), l.Sandboxes(), filepath.Join(l.State(), sandboxes),
		filepath.Join(l.Store(), tasks)}
	for i, dir := range dirs {
		dirs[i] = filepath.Join(dir, id)
	}
	return dirs
}

// BootID is the file with the ID of the boot in which State was created.
func (l Runtime) BootID() string { return filepath.Join(l.Containerd(), "boot-id") }

// Certs is the directory of registry host configurations (hosts.toml).
func (l Runtime) Certs() string { return filepath.Join(l.Containerd(), "certs.d") }

// CNIConf is the directory of the network configuration.
func (l Runtime) CNIConf() string { return filepath.Join(l.Root, "cni", "net.d") }

// CNIState is the directory in which the CNI plugin host-local records reserved addresses.
func (l Runtime) CNIState() string { return filepath.Join(l.Root, "cni", "addresses") }

// Images is the directory whose image archives the agent imports.
func (l Runtime) Images() string { return filepath.Join(l.Root, "images") }

// Imported is the file that records which archives were imported.
func (l Runtime) Imported() string { return filepath.Join(l.Images(), ".imported.json") }

// Run is the directory for sockets whose paths would be too long under Root.
func (l Runtime) Run() string { return filepath.Join(runBase, l.Hash()) }

// RunBase is the parent directory of Run, which may also have the directories of other agents.
func (l Runtime) RunBase() string { return runBase }

// ShimSockets is the directory of the shims' sockets. containerd limits its path to 42 characters.
func (l Runtime) ShimSockets() string { return filepath.Join(l.Run(), "s") }

// Socket is the path of containerd's socket, including the CRI: under Root if the path isn't too long for a socket,
// otherwise in Run.
func (l Runtime) Socket() string { return l.socket("containerd.sock") }

// TTRPCSocket is the path of the socket on which shims call containerd.
func (l Runtime) TTRPCSocket() string { return l.socket("containerd.sock.ttrpc") }

func (l Runtime) socket(name string) string {
	if p := filepath.Join(l.Containerd(), name); len(p) <= maxSocketPath {
		return p
	}
	return filepath.Join(l.Run(), name)
}

// Hash is a short identifier of the root directory.
func (l Runtime) Hash() string {
	sum := sha256.Sum256([]byte(l.Root))
	return hex.EncodeToString(sum[:6])
}

// Claim creates the root directory and, if it is new or empty, the marker, which allows a teardown to remove the
// directory. A directory that has files of other programs gets no marker. Call Claim before the first write under
// Root.
func (l Runtime) Claim() error {
	if err := os.MkdirAll(l.Root, 0o755); err != nil {
		return fmt.Errorf("root directory: %w", err)
	}
	if _, err := os.Lstat(l.Marker()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	entries, err := os.ReadDir(l.Root)
	if err != nil {
		return fmt.Errorf("root directory: %w", err)
	}
	for _, e := range entries {
		if !slices.Contains(harmless, e.Name()) {
			return nil
		}
	}
	text := "deckhand made this directory. `deckhand reset` removes it with everything in it.\n"
	if err := os.WriteFile(l.Marker(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("root directory: %w", err)
	}
	return nil
}

// Claimed reports whether the marker exists.
func (l Runtime) Claimed() bool {
	info, err := os.Lstat(l.Marker())
	return err == nil && info.Mode().IsRegular()
}

// Make creates the directories with the most restrictive modes that work. All users can traverse State, because
// containers with a user namespace reach their root file systems through it.
func (l Runtime) Make() error {
	if err := l.Claim(); err != nil {
		return err
	}
	dirs := []struct {
		path string
		mode fs.FileMode
	}{
		{l.Containerd(), 0o711},
		{l.Certs(), 0o700},
		{l.CNIConf(), 0o755},
		{l.CNIState(), 0o700},
		{l.Images(), 0o755},
		{l.RunBase(), 0o711},
		{l.Run(), 0o700},
		{l.ShimSockets(), 0o700},
	}
	for _, d := range dirs {
		if err := os.MkdirAll(d.path, d.mode); err != nil {
			return fmt.Errorf("make the runtime's directories: %w", err)
		}
	}
	return nil
}
