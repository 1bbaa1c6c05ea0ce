package embedded

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// lookAtHost determines the host's properties. dir is on the disk of the snapshots; before is the configuration
// that was written last, if any.
func lookAtHost(dir string, before []byte) (host, error) {
	h := host{Snapshotter: "overlayfs", Platform: "linux/" + runtime.GOARCH,
		HugePages: boundsHugePages("/sys/fs/cgroup")}
	may, err := HasCapability(unix.CAP_SYS_RESOURCE)
	if err != nil {
		return host{}, err
	}
	h.MayLowerOOMScore = may
	switch err := TryOverlay(dir); {
	case err == nil:
	case atomicfile.DiskFails(err): // this isn't about overlayfs; keep the snapshotter of the existing images
		if bytes.Contains(before, []byte(`snapshotter = "native"`)) {
			h.Snapshotter = "native"
		}
	default:
		h.Snapshotter = "native"
	}
	return h, nil
}

// boundsHugePages reports whether cgroups, mounted at dir, can limit the use of huge pages. It checks the same
// files as containerd.
func boundsHugePages(dir string) bool {
	controllers, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err == nil {
		return slices.Contains(strings.Fields(string(controllers)), "hugetlb")
	}
	info, err := os.Stat(filepath.Join(dir, "hugetlb")) // cgroup v1
	return err == nil && info.IsDir()
}

// HasCapability reports whether this process has the capability in its effective set.
func HasCapability(capability int) (bool, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return false, fmt.Errorf("read this process's capabilities: %w", err)
	}
	return data[capability/32].Effective&(1<<(uint(capability)%32)) != 0, nil
}
