package teardown

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// unmountBelow unmounts everything at and below name in dir, deepest first. A mount
// may hide others, so it looks again until nothing is left or nothing moves.
func unmountBelow(ctx context.Context, dir *os.File, name string) error {
	// The mount table has real paths, whatever links lead to dir.
	real, err := os.Readlink(procPath(dir))
	if err != nil {
		return fmt.Errorf("find the real path of %s: %w", dir.Name(), err)
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		points, err := mountsBelow(filepath.Join(real, name))
		if err != nil {
			return err
		}
		var errs []error
		for _, point := range points {
			if err := unmount(dir, real, point); err != nil {
				errs = append(errs, err)
			}
		}
		if len(errs) == len(points) {
			return errors.Join(errs...)
		}
	}
}

func mountsBelow(path string) ([]string, error) {
	infos, err := mountinfo.GetMounts(mountinfo.PrefixFilter(path))
	if err != nil {
		return nil, fmt.Errorf("read the mount table: %w", err)
	}
	points := make([]string, len(infos))
	for i, info := range infos {
		points[i] = info.Mountpoint
	}
	slices.SortFunc(points, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	return points, nil
}

// unmount takes the topmost mount off point, which lies below the folder dir at the
// real path base. The way to it is opened without following links first: it may
// have been changed since the mount table was read.
func unmount(dir *os.File, base, point string) error {
	rel, err := filepath.Rel(base, point)
	if err != nil {
		return err
	}
	holder, err := openBelow(dir, filepath.Dir(rel), unix.O_PATH, 0)
	if err != nil {
		return fmt.Errorf("unmount %s: %w", point, err)
	}
	defer holder.Close()
	err = unix.Unmount(procPath(holder)+"/"+filepath.Base(rel), unix.UMOUNT_NOFOLLOW)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("unmount %s: %w: a process still uses it; it is left as it is until that ends", point, err)
	}
	if err != nil {
		return fmt.Errorf("unmount %s: %w", point, err)
	}
	return nil
}

// procPath names an open folder so that the kernel goes straight to it.
func procPath(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }
