// Package hostcheck looks whether the host has what the agent with its embedded
// runtime needs, before anything is changed: one clear line for each thing that
// is wrong. What it tries out leaves nothing behind.
package hostcheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/runtime/embedded"
	"github.com/deckhand-node/deckhand/internal/runtime/embedded/cni"
)

// Config says what the agent is going to use.
type Config struct {
	Runtime embedded.Config
	// Listen are the TCP addresses that have to be free, "127.0.0.1:10248". The
	// caller leaves out those that a running agent of the same root folder holds.
	Listen []string
	// MinFree is how many bytes the disk of the root folder has to have free; 0 is DefaultMinFree.
	MinFree uint64
}

// DefaultMinFree has room for the images of the examples and some logs.
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
	config.Runtime = config.Runtime.WithDefaults()
	if os.Geteuid() != 0 {
		return []Problem{{Message: "this needs root: containers, cgroups and network interfaces are made; try it with sudo", Fatal: true}}
	}
	if err := config.Runtime.Validate(); err != nil {
		return fatal(err)
	}
	var problems []Problem
	if err := checkTools(config.Runtime.BinDirs); err != nil {
		problems = append(problems, fatal(err)...)
	}
	problems = append(problems, fatal(checkKernel())...)
	problems = append(problems, fatal(checkCgroups())...)
	problems = append(problems, checkRootDir(config)...)
	problems = append(problems, checkNetwork(ctx, config.Runtime)...)
	for _, address := range config.Listen {
		problems = append(problems, fatal(checkAddress(ctx, address))...)
	}
	return problems
}

// checkKernel tries the system call that opens files below folders which pods can
// write to: without it logs can't be read nor rotated.
func checkKernel() error {
	fd, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC})
	if err != nil {
		return fmt.Errorf("the system call openat2 can't be used (%w): it takes Linux 5.6 or newer, and a sandbox around this program must let it through", err)
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

func checkTools(binDirs []string) error {
	_, err := embedded.FindPrograms(binDirs)
	return err
}

func checkNetwork(ctx context.Context, config embedded.Config) []Problem {
	var problems []Problem
	if _, err := cni.Detect(ctx); err != nil {
		problems = append(problems, Problem{Message: err.Error() + "; install one (apt-get install nftables)", Fatal: true})
	}
	problems = append(problems, fatal(probeLinks())...)
	network, err := config.Network()
	if err != nil {
		return append(problems, fatal(err)...)
	}
	problems = append(problems, fatal(network.CheckBridge())...)
	problems = append(problems, fatal(network.CheckOverlap())...)
	if cni.ForwardDropped(ctx) {
		problems = append(problems, Problem{Message: fmt.Sprintf("the host's firewall drops forwarded packets (iptables FORWARD policy DROP, as Docker sets it), so pods reach only each other and this host; "+
			"to change that: iptables -I FORWARD -i %[1]s -j ACCEPT; iptables -I FORWARD -o %[1]s -j ACCEPT", network.Bridge)})
	}
	return problems
}

func checkAddress(ctx context.Context, address string) error {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("%s can't be listened on: %w; stop what uses it or choose another port", address, err)
	}
	return l.Close()
}

// neededControllers are what runc and the agent set limits and start containers with.
var neededControllers = []string{"cpu", "memory", "pids"}

// checkCgroups wants cgroup v2, or every needed controller of cgroup v1.
func checkCgroups() error {
	text, err := os.ReadFile("/proc/mounts")
	if err != nil {
		return fmt.Errorf("cgroups: %w", err)
	}
	return checkControllers(string(text), func(path string) ([]byte, error) { return os.ReadFile(path) })
}

func checkControllers(mounts string, read func(path string) ([]byte, error)) error {
	var available []string
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		switch {
		case len(f) < 4:
		case f[2] == "cgroup":
			available = append(available, strings.Split(f[3], ",")...)
		case f[2] == "cgroup2":
			if list, err := read(f[1] + "/cgroup.controllers"); err == nil {
				available = append(available, strings.Fields(string(list))...)
			}
		}
	}
	var missing []string
	for _, c := range neededControllers {
		if !slices.Contains(available, c) {
			missing = append(missing, c)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("cgroups: no controller %s: mount cgroup2 on /sys/fs/cgroup, or boot with the controllers enabled", strings.Join(missing, ", "))
	}
	return nil
}
