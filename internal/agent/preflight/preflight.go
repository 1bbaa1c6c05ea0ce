// Package preflight checks the agent's requirements on the host before the agent changes anything. It reports one
// line for each problem, and removes all that its checks create.
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

// Config describes the agent that is going to run.
type Config struct {
	// RootDir is the agent's root directory; empty means Runtime.RootDir.
	RootDir string
	// Endpoint is the container runtime's endpoint, as a URL or an absolute path. Empty means the embedded runtime.
	Endpoint string
	// Runtime configures the embedded runtime. It is ignored if Endpoint is set.
	Runtime embedded.Config
	// Listen are the TCP addresses that have to be free, such as "127.0.0.1:10248". The caller omits those that a
	// running agent of the same root directory uses.
	Listen []string
	// NodeIPs are the node's addresses that an interface should have; empty for no check.
	NodeIPs []netip.Addr
	// MinFree is the required free space of the root directory's disk in bytes; 0 is DefaultMinFree with the embedded
	// runtime, and no requirement with another one.
	MinFree uint64
	// Again says that an agent has run with this root directory before. Then too little free space is only a warning:
	// that agent's pods may still run, and only an agent can remove the images that fill the disk.
	Again bool
	// Swap is the reaction to active swap (failSwapOn). CgroupV1 is the reaction to a host that has only cgroup v1
	// (failCgroupV1).
	Swap, CgroupV1 Attitude
	// ProtectKernelDefaults refuses a host whose sysctls differ from those that the kubelet requires.
	ProtectKernelDefaults bool
	// BuiltAt is the latest possible build time of this program: a correct clock shows a later time. Zero if the build
	// time isn't recorded.
	BuiltAt time.Time
}

// Attitude is the reaction to a condition that the configuration may allow.
type Attitude int

const (
	// Accept doesn't report the condition.
	Accept Attitude = iota
	// Warn reports the condition as a problem that isn't fatal.
	Warn
	// Refuse reports the condition as a fatal problem.
	Refuse
)

// DefaultMinFree is the default of Config.MinFree with the embedded runtime, in bytes. It is enough for the images
// of the examples and some logs.
const DefaultMinFree = 512 << 20

// Problem is an unmet requirement of the agent on the host.
type Problem struct {
	// Message is one line: the problem, and how to solve it.
	Message string
	// Fatal is false if the agent can run in spite of the problem.
	Fatal bool
}

func (p Problem) String() string { return p.Message }

// Fatal returns an error with a line for each fatal problem; nil if there are none.
func Fatal(problems []Problem) error {
	var errs []error
	for _, p := range problems {
		if p.Fatal {
			errs = append(errs, errors.New(p.Message))
		}
	}
	return errors.Join(errs...)
}

// Check runs all checks and returns all problems. Without root privileges it returns a single problem, the missing
// privileges, because all checks need root.
func Check(ctx context.Context, config Config) []Problem {
	if os.Geteuid() != 0 {
		return []Problem{{Message: "must run as root, to create containers, cgroups and network interfaces: try it " +
			"with sudo", Fatal: true}}
	}
	return check(ctx, config, time.Now(), os.ReadFile, "/proc/sys")
}

// reader reads a file in /proc or /sys.
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

// checkKernel tries openat2. The agent opens files with it below directories that pods can write to. Without it the
// agent can't read or rotate logs.
func checkKernel() error {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	if err != nil {
		return fmt.Errorf("the system call openat2 can't be used (%w): it takes Linux 5.6 or newer, and a sandbox "+
			"around this program must let it through", err)
	}
	return unix.Close(fd)
}

// fatal returns a fatal problem for each line of err.
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

// about returns the problem for a condition that the configuration may allow. allow names the setting that allows
// it; the message contains it only if the problem is fatal.
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
