package machine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// LoadModules loads more modules than SetUp did, with those they need.
func LoadModules(names ...string) error { return loadModules(moduleDir, names...) }

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
