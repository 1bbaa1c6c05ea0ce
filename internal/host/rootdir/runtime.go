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

// maxSocketPath is the longest path a unix socket can be bound to: sun_path has
// 108 bytes with the closing zero (unix(7)).
const maxSocketPath = 107

// runBase holds one directory per root directory, for sockets that need a short path.
const runBase = "/run/deckhand"

// Runtime is the tree under one root directory. Root is absolute and clean.
type Runtime struct{ Root string }

// NewRuntime checks that root is a path that every program involved can handle.
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
	// runc and overlayfs separate lists of paths by these.
	if i := strings.IndexAny(root, `:,\`); i >= 0 {
		return Runtime{}, fmt.Errorf("root directory %q: overlayfs can't mount paths with %q in them", root, root[i])
	}
	return Runtime{Root: filepath.Clean(root)}, nil
}

// marker is the name of Marker, Record that of the install record (agent/reset).
const (
	marker = ".deckhand"
	Record = "footprint.json"
)

// Marker is the file that says that deckhand made the root directory and may remove it.
func (l Runtime) Marker() string { return filepath.Join(l.Root, marker) }

// Containerd is the directory of everything containerd's.
func (l Runtime) Containerd() string { return filepath.Join(l.Root, "containerd") }

// Config is containerd's generated configuration.
func (l Runtime) Config() string { return filepath.Join(l.Containerd(), "config.toml") }

// Log is containerd's log file.
func (l Runtime) Log() string { return filepath.Join(l.Containerd(), "containerd.log") }

// Store is containerd's persistent root: images, snapshots, metadata.
func (l Runtime) Store() string { return filepath.Join(l.Containerd(), "root") }

// State is containerd's state: true only until the next boot.
func (l Runtime) State() string { return filepath.Join(l.Containerd(), "state") }

// RuncRoot is where runc keeps the state of containers.
func (l Runtime) RuncRoot() string { return filepath.Join(l.State(), "runc") }

// Below State and Store: the directories where containerd's task service and its CRI plugin keep the state of one
// container or sandbox, named by its ID.
const (
	tasks     = "io.containerd.runtime.v2.task/k8s.io"
	sandboxes = "io.containerd.grpc.v1.cri/sandboxes"
)

// Bundles has one directory per running container: its bundle, with the root mounted.
func (l Runtime) Bundles() string { return filepath.Join(l.State(), tasks) }

// Sandboxes has one directory per sandbox with the files that its pod shares.
func (l Runtime) Sandboxes() string { return filepath.Join(l.Store(), sandboxes) }

// RuncContainers has one directory per running container with runc's record of it.
func (l Runtime) RuncContainers() string { return filepath.Join(l.RuncRoot(), "k8s.io") }

// RuncState is runc's record of a container.
func (l Runtime) RuncState(id string) string {
	return filepath.Join(l.RuncContainers(), id, "state.json")
}

// Of are all directories of one container or sandbox.
func (l Runtime) Of(id string) []string {
	dirs := []string{l.Bundles(), l.RuncContainers(), l.Sandboxes(), filepath.Join(l.State(), sandboxes),
		filepath.Join(l.Store(), tasks)}
	for i, dir := range dirs {
		dirs[i] = filepath.Join(dir, id)
	}
	return dirs
}

// BootID is the file that records in which boot State was made.
func (l Runtime) BootID() string { return filepath.Join(l.Containerd(), "boot-id") }

// Certs is the directory of registry host configurations (hosts.toml).
func (l Runtime) Certs() string { return filepath.Join(l.Containerd(), "certs.d") }

// CNIConf is the directory of the network configuration.
func (l Runtime) CNIConf() string { return filepath.Join(l.Root, "cni", "net.d") }

// CNIState is where host-local reserves addresses.
func (l Runtime) CNIState() string { return filepath.Join(l.Root, "cni", "addresses") }

// Images is the directory whose archives are imported.
func (l Runtime) Images() string { return filepath.Join(l.Root, "images") }

// Imported records which archives are imported already.
func (l Runtime) Imported() string { return filepath.Join(l.Images(), ".imported.json") }

// Run is the directory for sockets whose paths would be too long under Root.
func (l Runtime) Run() string { return filepath.Join(runBase, l.Hash()) }

// RunBase is the directory that holds Run, and those of other agents.
func (l Runtime) RunBase() string { return runBase }

// ShimSockets is where shims listen. containerd allows it 42 characters.
func (l Runtime) ShimSockets() string { return filepath.Join(l.Run(), "s") }

// Socket is where containerd answers, CRI included: under Root where it fits.
func (l Runtime) Socket() string { return l.socket("containerd.sock") }

// TTRPCSocket is where containerd answers its shims.
func (l Runtime) TTRPCSocket() string { return l.socket("containerd.sock.ttrpc") }

func (l Runtime) socket(name string) string {
	if p := filepath.Join(l.Containerd(), name); len(p) <= maxSocketPath {
		return p
	}
	return filepath.Join(l.Run(), name)
}

// Hash names the root directory in a few characters.
func (l Runtime) Hash() string {
	sum := sha256.Sum256([]byte(l.Root))
	return hex.EncodeToString(sum[:6])
}

// Claim makes the root directory and writes the marker, which lets a teardown remove the directory. A directory with
// someone else's files gets no marker. It has to be called before the first write under Root.
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

// Claimed reports whether the marker is there.
func (l Runtime) Claimed() bool {
	info, err := os.Lstat(l.Marker())
	return err == nil && info.Mode().IsRegular()
}

// Make makes the directories, with the least modes that work: containers of another
// user reach their root file systems through State, so it can be passed through.
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
