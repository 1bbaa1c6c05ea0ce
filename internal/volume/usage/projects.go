package usage

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// usedProjects returns the project IDs that administrators or other programs have listed in the files projects
// ("ID:directory", projects(5)) and projid ("name:ID", projid(5)) of the directory etc.
func usedProjects(etc string) (map[uint32]bool, error) {
	taken := map[uint32]bool{}
	for name, field := range map[string]int{"projects": 0, "projid": 1} {
		f, err := os.Open(filepath.Join(etc, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read which project IDs others use: %w", err)
		}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			fields := strings.SplitN(strings.TrimSpace(lines.Text()), ":", 2)
			if field >= len(fields) {
				continue
			}
			if id, err := strconv.ParseUint(strings.TrimSpace(fields[field]), 10, 32); err == nil {
				taken[uint32(id)] = true
			}
		}
		err = errors.Join(lines.Err(), f.Close())
		if err != nil {
			return nil, fmt.Errorf("read which project IDs others use, in %s: %w", f.Name(), err)
		}
	}
	return taken, nil
}
