// Package preflight checks whether the host has what the agent needs, before anything is
// changed: one line for each thing that is wrong. It leaves nothing of its trials behind.
package preflight

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/kernel"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
)

// Config says what the agent is going to use.
type Config struct {
	// RootDir is the agent's root directory; empty means Runtime.RootDir.
	RootDir string
	// Endpoint is where the container runtime answers, as a URL or an absolute path.
	// Empty means the embedded runtime.
	Endpoint string
	// Runtime is the embedded runtime. Nothing of it is looked at if there is an Endpoint.
	Runtime embedded.Config
	// Listen are the TCP addresses that have to be free, "127.0.0.1:10248". The
	// caller leaves out those that a running agent of the same root directory holds.
	Listen []string
	// NodeIPs are the node's addresses; none to look at none.
	NodeIPs []netip.Addr
	// MinFree is how many bytes the disk of the root directory has to have free; 0 is
	// DefaultMinFree with the embedded runtime, and any number with another.
	MinFree uint64
	// Again says that an agent has run with this root directory before. Then too little free space is
	// only a warning: its pods run, and nobody but an agent removes the images that fill the disk.
	Again bool
	// Swap is what to do where swap is on (failSwapOn), CgroupV1 where the host has
	// cgroup v1 only (failCgroupV1).
	Swap, CgroupV1 Attitude
	// ProtectKernelDefaults refuses a host whose kernel isn't set as the kubelet wants it.
	ProtectKernelDefaults bool
	// BuiltAt is when this program was made, at the latest: no clock that is right shows
	// an earlier time. Zero if that isn't known.
	BuiltAt time.Time
}

// Attitude is what to do about something that a person may have allowed.
type Attitude int

const (
	// Accept says nothing about it.
	Accept Attitude = iota
	// Warn makes a problem of it that isn't fatal.
	Warn
	// Refuse makes a fatal problem of it.
	Refuse
)

// DefaultMinFree is enough for the images of the examples and some logs.
const DefaultMinFree = 512 << 20

// Problem is one thing that is wrong with the host.
type Problem struct {
	// Message is one line that says what is wrong and what to do.
	Message string
	// Fatal is false where the agent gets by without.
	Fatal bool
}

func (p Problem) String() string { return p.Message }

// Fatal returns an error that lists the fatal ones of the problems, a line each,
// or nil if there are none.
func Fatal(problems []Problem) error {
	var errs []error
	for _, p := range problems {
		if p.Fatal {
			errs = append(errs, errors.New(p.Message))
		}
	}
	return errors.Join(errs...)
}

// Check looks at everything and returns all problems. Without root privileges
// it returns just that: what else it would find out needs them.
func Check(ctx context.Context, config Config) []Problem {
	if os.Geteuid() != 0 {
		return []Problem{{Message: "must run as root, to create containers, cgroups and network interfaces: try it " +
			"with sudo", Fatal: true}}
	}
	return check(ctx, config, time.Now(), os.ReadFile, "/proc/sys")
}

// reader reads a file of the kernel's.
type reader func(path string) ([]byte, error)

func check(ctx context.Context, config Config, now time.Time, read reader, settings kernel.Sysctls) []Problem {
	config.Runtime = config.Runtime.WithDefaults()
	if config.RootDir == "" {
		config.RootDir = config.Runtime.RootDir
	}
	own := config.Endpoint == ""
	if own {
		if err := config.Runtime.Validate(); err != nil {
			return fatal(err)
		}
	}
	problems := checkClock(now, config.BuiltAt)
	problems = append(problems, fatal(checkKernel())...)
	if config.ProtectKernelDefaults {
		problems = append(problems, checkKernelSettings(settings)...)
	}
	problems = append(problems, checkNodeIPs(config.NodeIPs, net.InterfaceAddrs)...)
	problems = append(problems, checkCgroups(config.CgroupV1, read)...)
	problems = append(problems, checkSwap(config.Swap, read)...)
	if own {
		problems = append(problems, checkOwn(ctx, config)...)
	} else {
		problems = append(problems, checkRootDir(config.RootDir, config.MinFree, config.Again)...)
		problems = append(problems, checkEndpoint(ctx, config.Endpoint)...)
	}
	for _, address := range config.Listen {
		problems = append(problems, fatal(checkAddress(ctx, address))...)
	}
	return problems
}

// checkKernel tries the system call that opens files below directories which pods can
// write to: without it logs can't be read nor rotated.
func checkKernel() error {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	if err != nil {
		return fmt.Errorf("the system call openat2 can't be used (%w): it takes Linux 5.6 or newer, and a sandbox "+
			"around this program must let it through", err)
	}
	return unix.Close(fd)
}

// fatal makes one problem of every error that is joined in err.
func fatal(err error) []Problem {
	var problems []Problem
	if err == nil {
		return nil
	}
	for line := range strings.Lines(err.Error()) {
		problems = append(problems, Problem{Message: strings.TrimSpace(line), Fatal: true})
	}
	return problems
}

// about makes a problem of what a person may have allowed. allow says how to: that is
// for who hasn't.
func (a Attitude) about(message, allow string) []Problem {
	switch a {
	case Refuse:
		return []Problem{{Message: message + ", or allow it with " + allow, Fatal: true}}
	case Warn:
		return []Problem{{Message: message}}
	default:
		return nil
	}
}

func checkAddress(ctx context.Context, address string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("%s can't be listened on: %w; stop what uses it or choose another port", address, err)
	}
	return l.Close()
}
