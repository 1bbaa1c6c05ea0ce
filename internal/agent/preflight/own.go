package preflight

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/cni"
)

// checkOwn checks the requirements of the embedded runtime: its programs, a disk for images and containers, and the
// pod network.
func checkOwn(ctx context.Context, config Config) []Problem {
	_, err := embedded.FindPrograms(config.Runtime.BinDirs)
	problems := fatal(err)
	problems = append(problems, checkOwnDisk(config)...)
	return append(problems, checkNetwork(ctx, config.Runtime)...)
}

func checkOwnDisk(config Config) []Problem {
	root := config.RootDir
	problems := checkRootDir(root, cmp.Or(config.MinFree, DefaultMinFree), config.Again)
	dir, st, err := diskOf(root)
	if err != nil || st.Flags&unix.ST_RDONLY != 0 {
		return problems // reported by checkRootDir; the checks below need a writable disk
	}
	if st.Flags&unix.ST_NOEXEC != 0 {
		return append(problems, fatal(
			fmt.Errorf("root directory %s: its file system is mounted noexec, so containers couldn't run there; "+
				"choose another with --root-dir", root))...)
	}
	if err := embedded.TryOverlay(dir); err != nil && !atomicfile.DiskFull(err) {
		problems = append(problems,
			Problem{Message: fmt.Sprintf(
				"root directory %s: no overlayfs there (%v), so every container gets a full copy of its image; a "+
					"disk with ext4 or xfs is better", root, err)})
	}
	return problems
}

func checkNetwork(ctx context.Context, config embedded.Config) []Problem {
	var problems []Problem
	if _, err := cni.Detect(ctx); err != nil {
		problems = append(problems,
			Problem{Message: err.Error() + "; install one (apt-get install nftables)", Fatal: true})
	}
	problems = append(problems, fatal(probeLinks())...)
	network, err := config.Network()
	if err != nil {
		return append(problems, fatal(err)...)
	}
	problems = append(problems, fatal(network.CheckBridge())...)
	problems = append(problems, fatal(network.CheckOverlap())...)
	if cni.ForwardDropped(ctx) {
		problems = append(problems,
			Problem{Message: fmt.Sprintf(
				"the host's firewall drops forwarded packets (iptables FORWARD policy DROP, as Docker sets it), so "+
					"pods reach only each other and this host; "+
					"to change that: iptables -I FORWARD -i %[1]s -j ACCEPT; iptables -I FORWARD -o %[1]s -j ACCEPT",
				network.Bridge)})
	}
	return problems
}

// probeLinks checks that a bridge and a veth pair can be created. It does so in a temporary network namespace, which
// ends with its thread.
func probeLinks() error {
	result := make(chan error, 1)
	go func() {
		// The thread is never unlocked, so that it and its namespace end with this goroutine.
		runtime.LockOSThread()
		result <- probeLinksHere()
	}()
	return <-result
}

func probeLinksHere() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("can't create network namespaces: %w; the kernel needs CONFIG_NET_NS", err)
	}
	var errs []error
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "probe0"
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		errs = append(errs, fmt.Errorf("can't create bridges: %w; the kernel needs CONFIG_BRIDGE (modprobe bridge)",
			err))
	}
	attrs.Name = "probe1"
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "probe2"}); err != nil {
		errs = append(errs, fmt.Errorf("can't create veth interfaces: %w; the kernel needs CONFIG_VETH (modprobe veth)",
			err))
	}
	return errors.Join(errs...)
}
