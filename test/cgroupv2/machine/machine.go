// Package machine is a guest's own side of things: it makes a root file system in memory
// that shows programs of the host, and tells the test on the host what there is to see.
package machine

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Where the guest's own root file system has what.
const (
	// Dir is the directory on the host that the test made: the guest's program, deckhand,
	// manifests, and links to the runtime's programs and the kernel modules.
	Dir = "/opt/guest"
	// BinDir has the runtime's programs.
	BinDir = "/opt/bin"
	// Path is where programs are searched.
	Path = toolDir + ":/usr/bin:/usr/sbin"

	toolDir   = "/opt/tools"
	moduleDir = "/lib-modules"
)

// CgroupDir is where cgroup v2 is.
const CgroupDir = "/sys/fs/cgroup"

// SetUp makes a root file system in memory that shows only programs of the host,
// read-only, mounts what a Linux host has, and loads modules. Files are put there, with
// their directories; the name of an empty directory ends in a slash.
func SetUp(files map[string]string) error {
	if err := newRoot(files); err != nil {
		return fmt.Errorf("make the guest's root file system: %w", err)
	}
	if err := MountKernel(); err != nil {
		return err
	}
	if err := loadModules(moduleDir,
		"overlay", "bridge", "veth",
		// For iptables of the old kind: the nftables of this kernel have no family ip.
		"iptable_filter", "iptable_nat", "iptable_raw", "xt_comment", "xt_MASQUERADE", "xt_nat",
		"xt_mark", "xt_multiport", "xt_addrtype", "xt_tcpudp", "xt_conntrack",
	); err != nil {
		return err
	}
	if err := os.Setenv("PATH", Path); err != nil {
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
func newRoot(files map[string]string) error {
	const root = "/run" // any directory that every host has
	host, err := filepath.EvalSymlinks(filepath.Dir(os.Args[0]))
	if err != nil {
		return err
	}
	if err := unix.Mount("tmpfs", root, "tmpfs", 0, "mode=0755"); err != nil {
		return err
	}
	shown := map[string]string{"/usr": "/usr", host: Dir, host + "/bin": BinDir, host + "/modules": moduleDir}
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
	if err := fill(root, files); err != nil {
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

// fill makes directories and the few files that a host has and programs want.
func fill(root string, files map[string]string) error {
	all := map[string]string{
		"host/": "", "proc/": "", "sys/": "", "dev/": "", "run/": "", "tmp/": "", "root/": "", "var/lib/": "", "var/log/": "", toolDir + "/": "",
		"etc/hosts":       "127.0.0.1 localhost\n",
		"etc/resolv.conf": "nameserver 127.0.0.1\n",
		"etc/passwd":      "root:x:0:0:root:/root:/bin/sh\n",
	}
	maps.Copy(all, files)
	for name, text := range all {
		if err := put(filepath.Join(root, name), strings.HasSuffix(name, "/"), text); err != nil {
			return err
		}
	}
	return os.Symlink("/usr/sbin/iptables-legacy", filepath.Join(root, toolDir, "iptables"))
}

func put(path string, directory bool, text string) error {
	if directory {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

// MountKernel mounts the kernel's own file systems.
func MountKernel() error {
	for _, m := range []struct {
		kind, dir, options string
	}{
		{kind: "proc", dir: "/proc"},
		{kind: "sysfs", dir: "/sys"},
		{kind: "devtmpfs", dir: "/dev"},
		{kind: "devpts", dir: "/dev/pts", options: "mode=0620,ptmxmode=0666"},
		{kind: "tmpfs", dir: "/dev/shm"},
		{kind: "cgroup2", dir: CgroupDir},
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
