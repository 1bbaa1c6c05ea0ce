package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Where the guest's own root file system has what.
const (
	// guestDir is the folder on the host that the test made: this program, deckhand,
	// manifests, and links to the runtime's programs and the kernel modules.
	guestDir = "/opt/guest"
	binDir   = "/opt/bin"
	// toolDir comes first in PATH.
	toolDir   = "/opt/tools"
	moduleDir = "/lib-modules"
)

const cgroupDir = "/sys/fs/cgroup"

// setUp makes a root file system in memory that shows only programs of the host,
// read-only, mounts what a Linux host has, and loads modules.
func setUp() error {
	if err := newRoot(); err != nil {
		return fmt.Errorf("make the guest's root file system: %w", err)
	}
	if err := mountKernel(); err != nil {
		return err
	}
	if err := loadModules(moduleDir,
		"overlay", "bridge", "veth",
		// For iptables of the old kind: the nftables of this kernel have no family ip.
		"iptable_filter", "iptable_nat", "xt_comment", "xt_MASQUERADE", "xt_nat",
		"xt_mark", "xt_multiport", "xt_addrtype", "xt_tcpudp", "xt_conntrack",
	); err != nil {
		return err
	}
	if err := os.Setenv("PATH", toolDir+":/usr/bin:/usr/sbin"); err != nil {
		return err
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// newRoot moves into a tmpfs. What is shown of the host in it is mounted
// read-only, as the host's root was by the kernel's command line.
func newRoot() error {
	const root = "/run" // any folder that every host has
	host, err := filepath.EvalSymlinks(filepath.Dir(os.Args[0]))
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	shown := map[string]string{"/usr": "/usr", host: guestDir, host + "/bin": binDir, host + "/modules": moduleDir}
	for from, to := range shown {
		if err := show(from, filepath.Join(root, to)); err != nil {
			return fmt.Errorf("show the host's %s: %w", from, err)
		}
	}
	for _, name := range []string{"bin", "sbin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil {
			return err
		}
	}
	if err := fill(root); err != nil {
		return err
	}
	if err := unix.PivotRoot(root, filepath.Join(root, "host")); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := unix.Unmount("/host", unix.MNT_DETACH); err != nil {
		return err
	}
	return os.Remove("/host")
}

func show(from, to string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	return unix.Mount(from, to, "", unix.MS_BIND, "")
}

// fill makes folders and the few files that a host has and programs want.
func fill(root string) error {
	for _, dir := range []string{"host", "proc", "sys", "dev", "run", "tmp", "root", "etc", "var/lib", "var/log", toolDir, manifestDir} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		"etc/hosts":       "127.0.0.1 localhost\n",
		"etc/resolv.conf": "nameserver 127.0.0.1\n",
		"etc/passwd":      "root:x:0:0:root:/root:/bin/sh\n",
	} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return os.Symlink("/usr/sbin/iptables-legacy", filepath.Join(root, toolDir, "iptables"))
}

// mountKernel mounts the kernel's own file systems.
func mountKernel() error {
	for _, m := range []struct {
		kind, dir, options string
	}{
		{kind: "proc", dir: "/proc"},
		{kind: "sysfs", dir: "/sys"},
		{kind: "devtmpfs", dir: "/dev"},
		{kind: "devpts", dir: "/dev/pts", options: "mode=0620,ptmxmode=0666"},
		{kind: "tmpfs", dir: "/dev/shm"},
		{kind: "cgroup2", dir: cgroupDir},
	} {
		if err := os.MkdirAll(m.dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.dir, m.kind, 0, m.options); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.dir, err)
		}
	}
	return nil
}

// loadModules loads modules with those they need, which modules.dep lists, the
// deepest last (modules.dep(5)).
func loadModules(dir string, names ...string) error {
	list, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return err
	}
	chains := map[string][]string{}
	for line := range strings.Lines(string(list)) {
		if file, needs, ok := strings.Cut(line, ":"); ok {
			name, _, _ := strings.Cut(filepath.Base(file), ".ko")
			chains[name] = append([]string{file}, strings.Fields(needs)...)
		}
	}
	for _, name := range names {
		chain, ok := chains[name]
		if !ok {
			return fmt.Errorf("kernel module %s: not in %s", name, dir)
		}
		for i := len(chain) - 1; i >= 0; i-- {
			if err := loadModule(filepath.Join(dir, chain[i])); err != nil {
				return fmt.Errorf("kernel module %s: %s: %w", name, chain[i], err)
			}
		}
	}
	return nil
}

func loadModule(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := 0
	if filepath.Ext(path) != ".ko" {
		flags = unix.MODULE_INIT_COMPRESSED_FILE
	}
	if err := unix.FinitModule(int(f.Fd()), "", flags); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	return nil
}
