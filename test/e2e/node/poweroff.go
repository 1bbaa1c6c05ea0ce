package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// PowerOff leaves the node as a power cut does: nothing runs, nothing is mounted,
// the pods' interfaces and control groups are gone; what is on disk stays.
func (n *Node) PowerOff() {
	n.t.Helper()
	n.Kill()
	n.SignalContainerd(unix.SIGKILL)
	n.Eventually("nothing runs", n.killRest)
	for _, what := range n.leftMounts() {
		// It may have gone with one around it.
		if err := unix.Unmount(strings.TrimPrefix(what, "mount "), unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
			n.t.Fatalf("%s: %v", what, err)
		}
	}
	n.Eventually("interfaces go with their namespaces", func() error {
		if names := n.Attached(); len(names) > 0 {
			return errors.New(strings.Join(names, " "))
		}
		return nil
	})
	for _, dir := range cgroupDirs(n.CgroupRoot) {
		if err := removeCgroups(dir); err != nil {
			n.t.Fatal(err)
		}
	}
	// What a reboot clears, being in /run.
	layout, err := n.in.Config.Layout()
	if err != nil {
		n.t.Fatal(err)
	}
	if err := os.RemoveAll(layout.Run()); err != nil {
		n.t.Fatal(err)
	}
	// How deckhand knows that it is another boot: by the kernel's word for it, which is a UUID.
	boot := layout.BootID()
	if _, err := os.Stat(boot); err != nil {
		n.t.Fatal(err)
	}
	const earlier = "00000000-0000-4000-8000-000000000000"
	n.write(boot, earlier)
	this, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		n.t.Fatal(err)
	}
	devices := filepath.Join(n.RootDir, "device-plugins", "kubelet_internal_checkpoint")
	switch record, err := os.ReadFile(devices); {
	case err == nil:
		n.write(devices, strings.ReplaceAll(string(record), strings.TrimSpace(string(this)), earlier))
	case !errors.Is(err, fs.ErrNotExist):
		n.t.Fatal(err)
	}
}

// killRest kills the node's processes, shims first so that they don't tell anybody.
func (n *Node) killRest() error {
	left := 0
	for _, p := range processes() {
		shim := strings.HasPrefix(filepath.Base(p.args[0]), "containerd-shim") && strings.Contains(p.String(), n.RootDir+"/")
		if shim || n.inOurCgroups(p.pid) {
			left++
			// It may have gone with its namespace's first process.
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
	}
	if left > 0 {
		return errors.New("processes had to be killed")
	}
	return nil
}

func removeCgroups(dir string) error {
	for _, name := range list(dir) {
		path := filepath.Join(dir, name)
		if st, err := os.Lstat(path); err != nil || !st.IsDir() {
			continue
		}
		if err := removeCgroups(path); err != nil {
			return err
		}
	}
	return unix.Rmdir(dir)
}
