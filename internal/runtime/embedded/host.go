package embedded

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"
)

// lookAtHost finds out what containerd's configuration depends on. dir is on the
// disk where snapshots will be.
func lookAtHost(dir string) (host, error) {
	h := host{Snapshotter: "overlayfs", Platform: "linux/" + runtime.GOARCH}
	may, err := HasCapability(unix.CAP_SYS_RESOURCE)
	if err != nil {
		return host{}, err
	}
	h.MayLowerOOMScore = may
	if err := TryOverlay(dir); err != nil {
		h.Snapshotter = "native"
	}
	return h, nil
}

// HasCapability reports whether this process has the capability in effect.
func HasCapability(capability int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("read this process's capabilities: %w", err)
	}
	return data[capability/32].Effective&(1<<(uint(capability)%32)) != 0, nil
}

// TryOverlay mounts a small overlayfs under dir, which has to exist, and takes
// it down again: some file systems can't carry one even where the kernel can.
func TryOverlay(dir string) (err error) {
	work, err := os.MkdirTemp(dir, ".overlay-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	for _, name := range []string{"lower", "upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(work, name), 0o700); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=%[1]s/lower,upperdir=%[1]s/upper,workdir=%[1]s/work", work)
	merged := filepath.Join(work, "merged")
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return fmt.Errorf("overlayfs under %s: %w", dir, err)
	}
	return unix.Unmount(merged, unix.MNT_DETACH)
}
