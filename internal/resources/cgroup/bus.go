package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// patience is the timeout of one call to systemd. Systemd doesn't respond during a daemon-reload, which takes seconds
// on a large host.
const patience = 30 * time.Second

// booted exists if systemd is the first process (sd_booted(3)).
const booted = "/run/systemd/system"

// systemdBus manages cgroups as transient slices of systemd. The cgroups' limits are properties of the units, so a
// daemon-reload restores them instead of removing them. It uses one connection to systemd, which it opens on first use
// and after a loss. It is safe for concurrent use.
type systemdBus struct {
	mu   sync.Mutex
	conn *systemd.Conn
	// hangUp closes conn.
	hangUp  context.CancelFunc
	version int
	closed  bool
}

// errClosed is the error of calls after Close.
var errClosed = errors.New("the agent is stopping")

// systemdRunning returns nil if systemd is running, or else the reason in one line.
func systemdRunning() error {
	info, err := os.Lstat(booted)
	if err == nil && !info.IsDir() {
		err = &fs.PathError{Op: "lstat", Path: booted, Err: errors.New("isn't a directory")}
	}
	if err != nil {
		return fmt.Errorf("systemd isn't the first process of this host (%w)", err)
	}
	return nil
}

// Close closes the connection. All later calls fail.
func (b *systemdBus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.drop()
}

// Start starts the slice of this cgroup, and its parents, with the settings. created is false if the unit already
// existed; it then runs with its previous settings.
func (b *systemdBus) Start(ctx context.Context, group string, settings []setting) (created bool, err error) {
	unit := path.Base(group)
	err = b.do(ctx, "start", unit, func(ctx context.Context, c *systemd.Conn, version int) error {
		props, err := properties(settings, version)
		if err != nil {
			return err
		}
		props = append(props,
			property("Description", "Kubernetes pods: "+unit),
			// At shutdown, the agent terminates the pods gracefully; systemd must not stop them.
			property("DefaultDependencies", false),
			// Systemd enables only the controllers that accounting or limits require.
			property("CPUAccounting", true), property("MemoryAccounting", true), property("TasksAccounting", true))
		return await(ctx, func(done chan<- string) error {
			_, err := c.StartTransientUnitContext(ctx, unit, "replace", props, done)
			return err
		})
	})
	if !is(err, "UnitExists") {
		return err == nil, err
	}
	// The unit is running, has a unit file, or was stopped a moment ago.
	return false, b.do(ctx, "start", unit, func(ctx context.Context, c *systemd.Conn, _ int) error {
		return await(ctx, func(done chan<- string) error {
			_, err := c.StartUnitContext(ctx, unit, "replace", done)
			return err
		})
	})
}

// Set sets the unit's properties to match the cgroup's files, until the slice stops.
func (b *systemdBus) Set(ctx context.Context, group string, settings []setting) error {
	unit := path.Base(group)
	return b.do(ctx, "set limits of", unit, func(ctx context.Context, c *systemd.Conn, version int) error {
		props, err := properties(settings, version)
		if err != nil || len(props) == 0 {
			return err
		}
		return c.SetUnitPropertiesContext(ctx, unit, true, props...)
	})
}

// Stop stops the slice of this cgroup and every unit in it. It is no error if there is no such unit.
func (b *systemdBus) Stop(ctx context.Context, group string) error {
	unit := path.Base(group)
	err := b.do(ctx, "stop", unit, func(ctx context.Context, c *systemd.Conn, _ int) error {
		return await(ctx, func(done chan<- string) error {
			_, err := c.StopUnitContext(ctx, unit, "replace", done)
			return err
		})
	})
	if is(err, "NoSuchUnit") {
		return nil
	}
	return err
}

// do calls f for a unit, and once more on a new connection if the connection was lost: f has to be idempotent.
func (b *systemdBus) do(ctx context.Context, what, unit string,
	f func(context.Context, *systemd.Conn, int) error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for first := true; ; first = false {
		conn, version, err := b.connect(ctx)
		if err == nil {
			err = f(ctx, conn, version)
		}
		if first && lost(err) {
			b.lose(conn)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s systemd's %s: %w", what, unit, err)
		}
		return nil
	}
}

// lost reports whether err means that the connection ended without a response. Systemd closes connections to its own
// socket when it re-executes itself (daemon-reexec).
func lost(err error) bool {
	return slices.ContainsFunc([]error{dbus.ErrClosed, io.EOF, unix.ECONNRESET, unix.EPIPE},
		func(end error) bool { return errors.Is(err, end) })
}

// connect returns the current connection, or opens one: over the system bus or, if that isn't available, over systemd's
// own socket. Over that socket, systemd sends all its signals.
func (b *systemdBus) connect(ctx context.Context) (*systemd.Conn, int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, 0, errClosed
	case b.conn != nil && b.conn.Connected():
		return b.conn, b.version, nil
	}
	b.drop()
	// The connection outlives the call that opens it.
	lasting, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	enough := context.AfterFunc(ctx, hangUp)
	conn, version, err := dial(lasting)
	if !enough() || err != nil {
		hangUp()
		return nil, 0, errors.Join(ctx.Err(), err)
	}
	b.conn, b.version, b.hangUp = conn, version, hangUp
	return conn, version, nil
}

// dial opens a connection that is closed when ctx ends.
func dial(ctx context.Context) (*systemd.Conn, int, error) {
	conn, err := systemd.NewWithContext(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("connect to systemd: %w", err)
	}
	version, err := conn.GetManagerProperty("Version")
	if err != nil {
		conn.Close()
		return nil, 0, fmt.Errorf("ask systemd for its version: %w", err)
	}
	return conn, parseVersion(version), nil
}

// lose drops the connection, unless it was already replaced.
func (b *systemdBus) lose(conn *systemd.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.conn == conn {
		b.drop()
	}
}

func (b *systemdBus) drop() {
	if b.conn != nil {
		b.conn.Close()
		b.hangUp()
		b.conn = nil
	}
}

// await starts a job of systemd and waits until it has ended.
func await(ctx context.Context, begin func(done chan<- string) error) error {
	done := make(chan string, 1)
	if err := begin(done); err != nil {
		return err
	}
	select {
	case result := <-done:
		if result != "done" {
			return fmt.Errorf("its job ended with %q: see what `journalctl -b _PID=1` says", result)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("its job hasn't ended: %w", ctx.Err())
	}
}

// is reports whether err is systemd's D-Bus error with this name.
func is(err error, name string) bool {
	var refused dbus.Error
	return errors.As(err, &refused) && refused.Name == "org.freedesktop.systemd1."+name
}

// parseVersion parses "252.38-1~deb12u1", in quotes or not, or "v252"; 0 for another format.
func parseVersion(text string) int {
	text = strings.TrimLeft(text, `"v`)
	if end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		text = text[:end]
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return n
}
