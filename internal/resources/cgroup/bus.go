package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"
	"golang.org/x/sys/unix"
)

// patience is how long systemd may take for one thing. It answers nobody while it
// reads its units again, which takes seconds on a large host.
const patience = 30 * time.Second

// booted is there where systemd is the first process (sd_booted(3)).
const booted = "/run/systemd/system"

// systemdBus makes control groups of systemd's, transient slices. Their limits are properties of the
// unit, so that a daemon-reload sets them again instead of undoing them. It uses one
// connection to systemd, made when it is first needed and again when it is lost. It is safe for concurrent use.
type systemdBus struct {
	mu   sync.Mutex
	conn *systemd.Conn
	// hangUp ends conn.
	hangUp  context.CancelFunc
	version int
	closed  bool
}

// errClosed is returned after Close.
var errClosed = errors.New("the agent is stopping")

// systemdRunning returns in one line why there is no systemd to talk to, or nil.
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

// Close ends the connection. Nothing can be done with b after that.
func (b *systemdBus) Close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.drop()
}

// Start starts the slice of this control group with the settings, and those it is in.
// created is false if systemd knew it already; then it runs with the settings it had.
func (b *systemdBus) Start(ctx context.Context, group string, settings []setting) (created bool, err error) {
	unit := path.Base(group)
	err = b.do(ctx, "start", unit, func(ctx context.Context, c *systemd.Conn, version int) error {
		props, err := properties(settings, version)
		if err != nil {
			return err
		}
		props = append(props,
			property("Description", "Kubernetes pods: "+unit),
			// As the host goes down, pods are for the agent to stop, in their own time.
			property("DefaultDependencies", false),
			// Systemd gives a slice those controllers only that somebody wants.
			property("CPUAccounting", true), property("MemoryAccounting", true), property("TasksAccounting", true))
		return await(ctx, func(done chan<- string) error {
			_, err := c.StartTransientUnitContext(ctx, unit, "replace", props, done)
			return err
		})
	})
	if !is(err, "UnitExists") {
		return err == nil, err
	}
	// It runs already, or has a file of a person's, or was stopped a moment ago.
	return false, b.do(ctx, "start", unit, func(ctx context.Context, c *systemd.Conn, _ int) error {
		return await(ctx, func(done chan<- string) error {
			_, err := c.StartUnitContext(ctx, unit, "replace", done)
			return err
		})
	})
}

// Set has systemd know what the control group's files say. It is forgotten when the
// slice stops.
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

// Stop stops the slice of this control group and every unit in it. One that systemd
// doesn't know is no error.
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

// do does something with a unit over the connection, and once more over another if
// that one was lost: everything here may be done twice.
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

// lost says that there was no answer, since the connection has ended: systemd ends
// those to its own socket when it starts itself again (daemon-reexec).
func lost(err error) bool {
	for _, end := range [...]error{dbus.ErrClosed, io.EOF, unix.ECONNRESET, unix.EPIPE} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}

// connect is over the system's bus, or, where there is none, systemd's own socket.
// The disadvantage of that socket is that systemd sends all its signals there.
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
	// The connection lasts longer than what it is first needed for.
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

// dial makes a connection that lasts as long as ctx.
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

// lose drops the connection, unless there is another one already.
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

// await begins a job of systemd's and waits until it has ended.
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

// is reports whether systemd refused with this error of its own.
func is(err error, name string) bool {
	var refused dbus.Error
	return errors.As(err, &refused) && refused.Name == "org.freedesktop.systemd1."+name
}

// parseVersion reads "252.38-1~deb12u1", in quotes or not, or "v252"; 0 if it can't be read.
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
