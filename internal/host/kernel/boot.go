package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// BootID returns the random UUID of this boot of the host whose file system is at root (random(4)).
func BootID(root string) (string, error) {
	id, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("read the boot's identity: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}
