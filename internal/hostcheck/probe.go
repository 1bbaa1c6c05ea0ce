package hostcheck

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

// probeLinks makes a bridge and a pair of interfaces in a network namespace that
// goes away with its thread.
func probeLinks() error {
	result := make(chan error, 1)
	go func() {
		// Never unlocked: so the thread, and with it the namespace, ends with this function.
		runtime.LockOSThread()
		result <- probeLinksHere()
	}()
	return <-result
}

func probeLinksHere() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("network namespaces can't be made: %w; the kernel needs CONFIG_NET_NS", err)
	}
	var errs []error
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probe0"
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		errs = append(errs, fmt.Errorf("bridges can't be made: %w; the kernel needs CONFIG_BRIDGE (modprobe bridge)", err))
	}
	attrs.Name = "probe1"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "probe2"}); err != nil {
		errs = append(errs, fmt.Errorf("veth interfaces can't be made: %w; the kernel needs CONFIG_VETH (modprobe veth)", err))
	}
	return errors.Join(errs...)
}

// checkRootDir looks at the disk that the root folder is on, or will be on.
func checkRootDir(config Config) []Problem {
	root := config.Runtime.RootDir
	dir, err := nearest(root)
	if err != nil {
		return fatal(fmt.Errorf("root folder %s: %w", root, err))
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fatal(fmt.Errorf("root folder %s: %w", root, err))
	}
	switch {
	case st.Flags&unix.ST_RDONLY != 0:
		return fatal(fmt.Errorf("root folder %s: its file system is read-only; choose another with --root-dir", root))
	case st.Flags&unix.ST_NOEXEC != 0:
		return fatal(fmt.Errorf("root folder %s: its file system is mounted noexec, so containers couldn't run there; choose another with --root-dir", root))
	case unix.Access(dir, unix.W_OK) != nil:
		return fatal(fmt.Errorf("root folder %s: %s can't be written to; choose another with --root-dir", root, dir))
	}
	minFree := config.MinFree
	if minFree == 0 {
		minFree = DefaultMinFree
	}
	var problems []Problem
	if free := st.Bavail * uint64(st.Bsize); free < minFree {
		problems = append(problems, Problem{Message: fmt.Sprintf("root folder %s: its disk has %d MiB free and %d MiB are needed; make room or choose another with --root-dir", root, free>>20, minFree>>20), Fatal: true})
	}
	if err := embedded.TryOverlay(dir); err != nil {
		problems = append(problems, Problem{Message: fmt.Sprintf("root folder %s: no overlayfs there (%v), so every container gets a full copy of its image; a disk with ext4 or xfs is better", root, err)})
	}
	return problems
}

// nearest is the closest folder above path, or path itself, that exists.
func nearest(path string) (string, error) {
	for {
		info, err := os.Stat(path)
		if err == nil && !info.IsDir() {
			return "", fmt.Errorf("%s isn't a folder", path)
		}
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, fs.ErrNotExist) || path == "/" {
			return "", err
		}
		path = filepath.Dir(path)
	}
}
