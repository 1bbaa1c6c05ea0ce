package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/test/cgroupv2/machine"
)

// hostDir is the directory on the host that the test made, before there is another root.
func hostDir() string { return filepath.Dir(os.Args[0]) }

// readTree reads all files of a directory by their names in it.
func readTree(dir string) (map[string]string, error) {
	files := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		files[name] = string(text)
		return err
	})
	return files, err
}

// install puts programs beside those that the host has in /usr/bin: deckhand as the
// kubelet, and what it works with.
func install() error {
	const bin, hosts = "/usr/bin", "/opt/host-bin"
	if err := os.MkdirAll(hosts, 0o755); err != nil {
		return err
	}
	if err := unix.Mount(bin, hosts, "", unix.MS_BIND, ""); err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", bin, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	for name, program := range map[string]string{
		"deckhand": machine.Dir + "/deckhand", "kubelet": "deckhand",
		"containerd": machine.BinDir + "/containerd", "containerd-shim-runc-v2": machine.BinDir + "/containerd-shim-runc-v2", "runc": machine.BinDir + "/runc",
	} {
		if err := os.Symlink(program, filepath.Join(bin, name)); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(hosts)
	if err != nil {
		return err
	}
	for _, e := range entries {
		target := filepath.Join(hosts, e.Name())
		if link, err := os.Readlink(target); err == nil {
			target = link // which may be relative
		}
		if err := os.Symlink(target, filepath.Join(bin, e.Name())); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	if err := os.MkdirAll("/opt/cni", 0o755); err != nil {
		return err
	}
	return errors.Join(os.Symlink(machine.BinDir, "/opt/cni/bin"), os.Symlink("/run", "/var/run"))
}

// address gives the host an address that a node of a cluster may have.
func address() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr("192.0.2.10/32")
	if err != nil {
		return err
	}
	return netlink.AddrAdd(lo, a)
}

// keepUnits leaves systemd only those of the host's units that are needed, and its
// generators none: what the host runs is no business of the guest.
func keepUnits() error {
	const units = "/usr/lib/systemd/system"
	kept := map[string][]byte{}
	for _, name := range []string{"sysinit.target", "basic.target", "shutdown.target", "umount.target", "network.target", "network-online.target", "local-fs.target",
		"sockets.target", "dbus.socket", "dbus.service", "systemd-journald.socket", "systemd-journald.service"} {
		text, err := os.ReadFile(filepath.Join(units, name))
		if err != nil {
			return err
		}
		kept[name] = text
	}
	for _, dir := range []string{units, units + "-generators"} {
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return err
		}
	}
	for name, text := range kept {
		if err := os.WriteFile(filepath.Join(units, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sliceOf is the name of a pod's slice, in the Burstable QoS cgroup.
func sliceOf(uid string) string {
	return "kubepods-burstable-pod" + strings.ReplaceAll(uid, "-", "_") + ".slice"
}
