package cluster

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/server"
)

// Machine returns the description of the host for the Node object. root is the host's root file system ("/"), kernel
// and kubelet are versions.
func Machine(root, kernel, kubelet string) (v1.NodeSystemInfo, error) {
	m, err := server.NewMachineReader(root).Info()
	if err != nil {
		return v1.NodeSystemInfo{}, fmt.Errorf("find out what this machine is: %w", err)
	}
	info := v1.NodeSystemInfo{
		MachineID: m.MachineID, SystemUUID: m.SystemUUID, BootID: m.BootID, KernelVersion: kernel,
		OSImage:        osImage(root),
		KubeletVersion: kubelet, OperatingSystem: runtime.GOOS, Architecture: runtime.GOARCH,
	}
	if swap := int64(m.SwapCapacity); swap > 0 {
		info.Swap = &v1.NodeSwapStatus{Capacity: &swap}
	}
	return info, nil
}

// osImage returns the name of the operating system (PRETTY_NAME in os-release(5)).
func osImage(root string) string {
	for _, path := range []string{"etc/os-release", "usr/lib/os-release"} {
		file, err := os.Open(filepath.Join(root, path))
		if err != nil {
			continue
		}
		defer file.Close()
		for s := bufio.NewScanner(file); s.Scan(); {
			if name, ok := strings.CutPrefix(s.Text(), "PRETTY_NAME="); ok {
				return strings.Trim(name, `"'`)
			}
		}
	}
	return "Linux"
}
