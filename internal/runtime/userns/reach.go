package userns

import (
	"fmt"
	"os"
	"path/filepath"
)

// Reach returns an error if processes with a pod's IDs can't reach the directory dir, an absolute path: everyone
// needs search permission on every directory of the path. They must be able to reach the directory of the runtime's
// containers, or no container can be started.
func Reach(dir string) error {
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return err
	}
	for {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("pods with user namespaces can't run: their users have no access through directory %s "+
				"with mode %04o: chmod o+x %[1]s", dir, info.Mode().Perm())
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil
		}
		dir = parent
	}
}
