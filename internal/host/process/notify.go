// Package process is about the agent's own process: it asks the kernel to kill the agent last
// when memory runs out and to let it open many files, and notifies the service manager how the
// agent is doing (ready, reloading, stopping, alive) by systemd's notify protocol,
// sd_notify(3).
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
	// sendTimeout bounds one message: a service manager that doesn't read holds up
	// senders once its queue is full.
	sendTimeout = time.Second
	// maxStatus bounds a status text, in bytes: systemd drops messages of 4 KiB and more.
	maxStatus = 2000
	// minWatchdog is the shortest WatchdogSec that the kubelet's documentation supports
	// (https://kubernetes.io/docs/reference/node/systemd-watchdog).
	minWatchdog = time.Second
)

// The environment variables that the service manager sets for its service.
const (
	socketVariable      = "NOTIFY_SOCKET"
	watchdogVariable    = "WATCHDOG_USEC"
	watchdogPIDVariable = "WATCHDOG_PID"
)

// Notifier is the line to the service manager. Its methods may be called
// concurrently; without a service manager, as with the zero Notifier, they do nothing
// and return nil.
//
// Every message goes over a socket of its own, so that a service manager that is
// restarted, and listens again, goes on being notified.
type Notifier struct {
	// socket is a path, or "@" and a name in the abstract namespace; empty if nobody
	// wants to be notified.
	socket string
	// watchdog is within what time the service manager wants a watchdog notification; 0 if it doesn't.
	watchdog time.Duration
}

// New reads the service manager's variables from the environment by calling lookup, and removes them with unset: a
// child that found NOTIFY_SOCKET could speak for this program. os.Getenv and os.Unsetenv fit. An error names the
// variable that is invalid.
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

// watchdogPeriod reads WATCHDOG_USEC; 0 says that no watchdog notifications are wanted of
// this process.
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

// Ready says that the program is up, or done reloading. status is a line for people.
// To be called once the agent takes care of pods: units ordered after it wait for that.
func (n *Notifier) Ready(status string) error { return n.send("READY=1", statusLine(status)) }

// Stopping says that the program is ending in order.
func (n *Notifier) Stopping() error { return n.send("STOPPING=1") }

// Status is a line for people, shown by `systemctl status`.
func (n *Notifier) Status(text string) error { return n.send(statusLine(text)) }

// Reloading says that the configuration is being read again; Ready has to follow,
// also if that fails. It carries the time, which Type=notify-reload asks for.
func (n *Notifier) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("notify the service manager of a reload: read the monotonic clock: %w", err)
	}
	return n.send("RELOADING=1", "MONOTONIC_USEC="+strconv.FormatInt(now.Nano()/1000, 10))
}

// statusLine makes of text what the protocol can carry: one line of UTF-8, not too long.
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
