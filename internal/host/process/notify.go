// Package process manages the agent's own process: its OOM score, its limit of open files, and the notifications to
// the service manager (ready, reloading, stopping, watchdog) by systemd's protocol, sd_notify(3). It also reads the
// state of processes from /proc.
package process

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// sendTimeout is the timeout of one notification: if the service manager doesn't read, sending blocks once the
	// socket's queue is full.
	sendTimeout = time.Second
	// maxStatus is the maximum length of a status text in bytes: systemd drops messages of 4 KiB and more.
	maxStatus = 2000
	// minWatchdog is the shortest WatchdogSec that the kubelet's documentation supports
	// (https://kubernetes.io/docs/reference/node/systemd-watchdog).
	minWatchdog = time.Second
)

// The environment variables in which systemd passes its settings to a service.
const (
	socketVariable      = "NOTIFY_SOCKET"
	watchdogVariable    = "WATCHDOG_USEC"
	watchdogPIDVariable = "WATCHDOG_PID"
)

// Notifier sends notifications to the service manager. Its methods may be called concurrently. Without a service
// manager, as with the zero Notifier, they do nothing and return nil.
//
// Every notification uses a new socket, so that notifications work again after the service manager has restarted.
type Notifier struct {
	// socket is the service manager's socket: a path, or "@" and a name in the abstract namespace; empty if there
	// is no service manager.
	socket string
	// watchdog is the timeout of the service manager's watchdog, within which it expects a notification; 0 if the
	// watchdog is disabled.
	watchdog time.Duration
}

// New reads the service manager's environment variables with lookup (such as os.Getenv), and removes them with
// unset (such as os.Unsetenv): a child process with NOTIFY_SOCKET could send notifications in the agent's name. An
// error names the variable that is invalid.
func New(lookup func(name string) string, unset func(name string) error) (*Notifier, error) {
	n := &Notifier{socket: lookup(socketVariable)}
	period, pid := lookup(watchdogVariable), lookup(watchdogPIDVariable)
	for _, name := range [...]string{socketVariable, watchdogVariable, watchdogPIDVariable} {
		if err := unset(name); err != nil {
			return nil, fmt.Errorf("take %s out of the environment: %w", name, err)
		}
	}
	if n.socket == "" {
		return n, nil
	}
	if !filepath.IsAbs(n.socket) && (n.socket[0] != '@' || n.socket == "@") {
		return nil, fmt.Errorf("%s is %q: only an absolute path or @NAME is understood; the service manager sets it "+
			"for services with Type=notify", socketVariable, n.socket)
	}
	var err error
	n.watchdog, err = watchdogPeriod(period, pid)
	return n, err
}

// watchdogPeriod parses WATCHDOG_USEC; 0 if the service manager doesn't expect watchdog notifications from this
// process.
func watchdogPeriod(usec, pid string) (time.Duration, error) {
	if usec == "" || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0, nil
	}
	n, err := strconv.ParseInt(usec, 10, 64)
	if err != nil || n <= 0 || n > int64(time.Duration(1<<63-1)/time.Microsecond) {
		return 0, fmt.Errorf("%s is %q, not a number of microseconds: set WatchdogSec in the unit file",
			watchdogVariable, usec)
	}
	period := time.Duration(n) * time.Microsecond
	if period < minWatchdog {
		return 0, fmt.Errorf("the service manager's watchdog wants a notification every %s, which is too often to be "+
			"met when the host is busy: set WatchdogSec in the unit file to %s or more", period, minWatchdog)
	}
	return period, nil
}

// Ready notifies the service manager that the agent has started, or has finished a reload. status is a line for users.
// Call Ready once the agent manages pods: units that are ordered after the agent's unit start then.
func (n *Notifier) Ready(status string) error { return n.send("READY=1", statusLine(status)) }

// Stopping notifies that the agent is stopping.
func (n *Notifier) Stopping() error { return n.send("STOPPING=1") }

// Status sets a line for users, which `systemctl status` shows.
func (n *Notifier) Status(text string) error { return n.send(statusLine(text)) }

// Reloading notifies that the agent reloads its configuration. Ready has to follow, even if the reload fails. The
// notification includes the monotonic time, which Type=notify-reload requires.
func (n *Notifier) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("notify the service manager of a reload: read the monotonic clock: %w", err)
	}
	return n.send("RELOADING=1", "MONOTONIC_USEC="+strconv.FormatInt(now.Nano()/1000, 10))
}

// statusLine returns the assignment STATUS=text. It turns text into one line of UTF-8 of at most maxStatus bytes,
// as the protocol requires.
func statusLine(text string) string {
	text = strings.ReplaceAll(strings.TrimSpace(text), "\n", " ")
	return "STATUS=" + strings.ToValidUTF8(text[:min(len(text), maxStatus)], "")
}

func (n *Notifier) send(assignments ...string) error {
	if n.socket == "" {
		return nil
	}
	if err := n.write(strings.Join(assignments, "\n")); err != nil {
		return fmt.Errorf("notify the service manager of %s at %s: %w", assignments[0], n.socket, err)
	}
	return nil
}

func (n *Notifier) write(message string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(message))
	return err
}
