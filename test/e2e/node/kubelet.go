package node

import (
	"os"
	"path/filepath"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// MakeRoomForKubelet keeps a kubelet that runs as this node's agent from everything that isn't this node's, in this
// process's mount namespace, until the end of the test: it has fixed paths, and sets what it wants of the kernel.
func (n *Node) MakeRoomForKubelet() {
	n.t.Helper()
	mount := func(source, target, fstype string, flags uintptr) {
		n.t.Helper()
		if err := unix.Mount(source, target, fstype, flags, ""); err != nil {
			n.t.Fatalf("mount %s at %s: %v", source, target, err)
		}
		n.t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	}
	for _, dir := range []string{"/var/lib/kubelet", "/var/log/containers"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	mount("tmpfs", "/var/lib/kubelet", "tmpfs", 0)
	const fixed = "/var/lib/kubelet/device-plugins"
	own := filepath.Join(n.RootDir, "device-plugins")
	for _, dir := range []string{fixed, own} {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			n.t.Fatal(err)
		}
	}
	mount(own, fixed, "", unix.MS_BIND)
	mount(n.LogLinks, "/var/log/containers", "", unix.MS_BIND)
	n.KeepSysctls()
	hierarchies, err := mountinfo.GetMounts(mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		n.t.Fatal(err)
	}
	for _, h := range hierarchies {
		// The kubelet makes everything but cgroupRoot itself.
		if err := os.MkdirAll(filepath.Join(h.Mountpoint, n.CgroupRoot), 0o755); err != nil {
			n.t.Fatal(err)
		}
	}
	// The kubelet mounts its root directory onto itself, and pods still have volumes there.
	n.t.Cleanup(func() { _ = unix.Unmount(n.RootDir, unix.MNT_DETACH) })
}
