package cni

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// ReleaseAddresses frees reserved addresses of sandboxes that are gone, and returns them. The host-local plugin has
// a file per address, which has the address as its name and the sandbox's ID as its first line. Call it only while
// no sandbox is being created.
func (n Network) ReleaseAddresses(alive func(sandbox string) bool) ([]string, error) {
	dir := filepath.Join(n.AddressDir, n.Bridge)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the reserved pod addresses: %w", err)
	}
	var released []string
	var errs []error
	for _, e := range entries {
		if _, err := netip.ParseAddr(e.Name()); err != nil {
			continue // The plugin's lock, or the last allocated address.
		}
		path := filepath.Join(dir, e.Name())
		text, err := os.ReadFile(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		sandbox, _, _ := strings.Cut(string(text), "\n")
		if alive(strings.TrimSpace(sandbox)) {
			continue
		}
		if err := os.Remove(path); err != nil {
			errs = append(errs, err)
			continue
		}
		released = append(released, e.Name())
	}
	return released, errors.Join(errs...)
}
