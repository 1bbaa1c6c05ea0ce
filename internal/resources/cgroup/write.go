package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// write writes the settings to the files of the named group.
func write(l hierarchies, name string, settings []setting) error {
	var again []setting
	for _, s := range settings {
		err := writeOne(l, name, s)
		switch {
		case s.Optional && errors.Is(err, unix.ENOENT):
		case s.File == cpuPeriodFile && errors.Is(err, unix.EINVAL):
			// With the previous quota, the new period would give the group less CPU time than one of its children has.
			// This happens if the new period is longer, so it is written after the new quota.
			again = append(again, s)
		case err != nil:
			return err
		}
	}
	for _, s := range again {
		if err := writeOne(l, name, s); err != nil {
			return err
		}
	}
	return nil
}

func writeOne(l hierarchies, name string, s setting) error {
	mount, ok := l.Mounts[s.Controller]
	if !ok {
		return fmt.Errorf("set %s to %s in %s: the kernel offers no cgroup controller %q: %w", s.File, s.Value, name,
			s.Controller, unix.ENOENT)
	}
	dir := filepath.Join(mount, name)
	err := writeFile(filepath.Join(dir, s.File), s.Value)
	switch {
	case err == nil:
		return nil
	case s.File == memoryLimitFile && errors.Is(err, unix.EBUSY):
		if used, usedErr := l.Memory(name); usedErr == nil {
			err = tooMuch(s.Value, int64(used.WorkingSet), err)
		}
		return err
	case (s.File == cpuQuotaFile || s.File == cpuPeriodFile) && errors.Is(err, unix.EINVAL):
		return fmt.Errorf("set %s to %s in %s: a cgroup in it has a higher CPU limit, or one around it a lower one: %w",
			s.File, s.Value, dir, err)
	default:
		return fmt.Errorf("set %s to %s in %s: %w", s.File, s.Value, dir, err)
	}
}

// refuseBelowUsage fails for a memory limit below the group's usage. On cgroup v1 the kernel refuses it itself; on v2
// it would kill processes (KEP-1287, "Memory Limit Decreases"). The usage may still grow before the limit is set.
func (l hierarchies) refuseBelowUsage(name string, limit int64) error {
	if !l.V2 || limit == 0 {
		return nil
	}
	used, err := l.Memory(name)
	if err != nil || used.Usage <= uint64(limit) || used.WorkingSet <= uint64(limit) {
		return err
	}
	return tooMuch(strconv.FormatInt(limit, 10), int64(used.WorkingSet), unix.EBUSY)
}

func tooMuch(limit string, used int64, err error) error {
	return fmt.Errorf("attempting to set pod memory limit (%s) below current usage (%d): %w; the limit stays as it "+
		"was until the pod uses less", limit, used, err)
}

// writeFile writes a kernel file with as few system calls as possible: the start of each pod waits for several
// writes.
func writeFile(file, value string) error {
	fd, err := unix.Open(file, unix.O_WRONLY|unix.O_TRUNC|unix.O_CLOEXEC, 0)
	if err != nil {
		return &fs.PathError{Op: "open", Path: file, Err: err}
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	for err == unix.EINTR { // for example while the kernel reclaims memory because of a new memory limit
		_, err = unix.Write(fd, []byte(value))
	}
	if err != nil {
		return &fs.PathError{Op: "write", Path: file, Err: err}
	}
	return nil
}
