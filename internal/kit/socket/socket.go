// Package socket opens and dials unix sockets, even if their paths are too long for a socket address.
package socket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxSocketPath is the longest path that fits a unix socket address (unix(7)).
const maxSocketPath = 107

// Listen opens the socket at path with mode 0600. A socket left by a dead agent is replaced: the caller holds the
// lock on the root directory, so no running agent uses it.
func Listen(path string) (net.Listener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, fmt.Errorf("open the socket: %w", err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("open the socket: %s exists and is not a socket; move it away", path)
	}
	// The socket is made under another name and renamed once its mode is set, so that other users can't connect in
	// between.
	temporary := path + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open the socket: %w", err)
	}
	address, release, err := Address(temporary)
	if err != nil {
		return nil, fmt.Errorf("open the socket: %w", err)
	}
	defer release()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	if errors.Is(err, unix.ENOSPC) && os.Remove(path) == nil { // removing the dead agent's socket frees an inode
		listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: address, Net: "unix"})
	}
	if err != nil {
		return nil, fmt.Errorf("open the socket %s: %w", path, err)
	}
	// The rename below changes the socket's name, and when the listener is closed, the original name may belong to
	// another agent's socket.
	listener.SetUnlinkOnClose(false)
	if err := publish(temporary, path); err != nil {
		listener.Close()
		return nil, fmt.Errorf("open the socket: %w", errors.Join(err, os.Remove(temporary)))
	}
	return listener, nil
}

func publish(temporary, path string) error {
	if err := os.Chmod(temporary, 0o600); err != nil {
		return err
	}
	return os.Rename(temporary, path)
}

// Address returns a path for the same file that fits a socket address. It is valid until release is called.
func Address(path string) (address string, release func(), err error) {
	if len(path) <= maxSocketPath {
		return path, func() {}, nil
	}
	dir, err := os.OpenFile(filepath.Dir(path), unix.O_PATH|unix.O_DIRECTORY, 0)
	if err != nil {
		return "", nil, err
	}
	address = filepath.Join("/proc/self/fd", strconv.Itoa(int(dir.Fd())), filepath.Base(path))
	return address, func() { dir.Close() }, nil
}

// Dial connects to the socket at path.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	address, release, err := Address(path)
	if err != nil {
		return nil, err
	}
	defer release()
	var dialer net.Dialer
	return dialer.DialContext(ctx, "unix", address)
}

// PeerUID returns the user ID of the process at the other end of a unix socket connection.
func PeerUID(c net.Conn) (uint32, error) {
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("not a unix socket connection: %T", c)
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if peerErr != nil {
		return 0, peerErr
	}
	return peer.Uid, nil
}
