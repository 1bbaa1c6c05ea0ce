package mounttest

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The server is a process of its own, for the sake of a test that asks its own file system. When Go's
// poller takes a file that was opened, the kernel asks the file system whether it can be polled; until
// that is answered, the process can't collect its garbage, and while it wants to, none of its
// goroutines goes on: a server among them would never answer. And a process that is killed
// while it waits for an answer of its own can't go.

// serverMark is set in the environment of the server's process: to the directory that it shows, or to oneFile.
const (
	serverMark = "DECKHAND_TEST_FUSE_SERVER"
	oneFile    = "."
)

// What the server's process has from the beginning.
const (
	orders = 0 // what it is to do, a byte for each; it ends when there are no more to come
	done   = 1 // the same byte, as soon as it does that
	device = 3 // the connection
)

// The orders. Any other is the errno with which writes to a mirror fail.
const (
	toAnswer    byte = 'a'
	toHang      byte = 'h'
	toHoldSyncs byte = 's'
)

// Main runs a package's tests (run) and returns the code to exit with. It is for TestMain of
// packages that use Mount or MountMirror: in the process of a server it serves instead.
func Main(run func() int) int {
	shows := os.Getenv(serverMark)
	if shows == "" {
		return run()
	}
	if err := serve(shows); err != nil {
		fmt.Fprintln(os.Stderr, "mounttest:", err)
		return 1
	}
	return 0
}

// serve answers until the connection is gone, or the test.
func serve(shows string) error {
	answers, ordered := result, func(byte) {}
	if shows != oneFile {
		m, err := newMirror(shows)
		if err != nil {
			return err
		}
		answers, ordered = m.result, m.order
	}
	if err := unix.SetNonblock(device, true); err != nil {
		return err
	}
	buf, hung := make([]byte, 128<<10), false
	for {
		fds := []unix.PollFd{{Fd: orders, Events: unix.POLLIN}, {Fd: device, Events: unix.POLLIN}}
		if hung {
			// Requests aren't read any more. If they were read and not answered, who waits
			// for them couldn't be killed.
			fds = fds[:1]
		}
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return err
		}
		if !hung && fds[1].Revents != 0 {
			if err := reply(buf, answers); errors.Is(err, unix.ENODEV) { // aborted or unmounted
				return nil
			} else if err != nil {
				return err
			}
			continue
		}
		var order [1]byte
		if n, err := unix.Read(orders, order[:]); n != 1 {
			return err
		}
		hung = order[0] == toHang
		ordered(order[0])
		if _, err := unix.Write(done, order[:]); err != nil {
			return err
		}
	}
}

// reply reads one request and answers it.
func reply(buf []byte, answers func(inHeader, []byte) ([]byte, unix.Errno)) error {
	n, err := unix.Read(device, buf)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		return nil // who asked doesn't wait any more
	case err != nil:
		return err
	}
	if out := answer(buf[:n], answers); out != nil {
		_, _ = unix.Write(device, out) // whoever doesn't wait any more gets none
	}
	return nil
}
