package userns

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mappedByProcesses lists the host's IDs that processes in user namespaces use.
func mappedByProcesses() ([]Range, error) {
	return mappedIn("/proc")
}

func mappedIn(proc string) ([]Range, error) {
	dir, err := os.Open(proc)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	seen := map[Range]struct{}{}
	for _, name := range names {
		if name[0] < '0' || name[0] > '9' {
			continue
		}
		for _, file := range []string{"uid_map", "gid_map"} {
			text, err := os.ReadFile(filepath.Join(proc, name, file))
			if err != nil {
				continue // the process has ended
			}
			if err := addMapped(seen, string(text)); err != nil {
				return nil, fmt.Errorf("%s of process %s: %w", file, name, err)
			}
		}
	}
	return slices.Collect(maps.Keys(seen)), nil
}

// addMapped parses lines of "ID inside, ID outside, length" (user_namespaces(7)).
func addMapped(to map[Range]struct{}, text string) error {
	for line := range strings.Lines(text) {
		var inside uint32
		var r Range
		if _, err := fmt.Sscan(line, &inside, &r.HostID, &r.Length); err != nil {
			return err
		}
		// A range from 0 on is the user namespace of this process, not a pod's.
		if r.HostID != 0 {
			to[r] = struct{}{}
		}
	}
	return nil
}
