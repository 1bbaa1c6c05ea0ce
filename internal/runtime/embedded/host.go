package embedded

import (
	"fmt"
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
