package mounttest

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// The server is a separate process because of tests that access their own file system. When Go's poller adds an opened
// file, the kernel asks the file system whether the file can be polled. Until the server answers, the Go process can't
// complete a garbage collection, which stops all its goroutines: a server among these would never answer. Besides, a
// process that is killed while it waits for an answer of its own can't end.

// serverMark is the environment variable of the server's process: the directory that the server shows, or oneFile.
const (
	serverMark = "DECKHAND_TEST_FUSE_SERVER"
	oneFile    = "."
)

// Descriptors that the server's process inherits.
const (
	orders = 0 // orders, one byte each; the server ends at the end of the file
	done   = 1 // the same byte, as soon as the order is in force
	device = 3 // the connection
)

// The orders. Any other byte is the errno with which writes to a mirror fail.
const (
	toAnswer    byte = 'a'
	toHang      byte = 'h'
	toHoldSyncs byte = 's'
)

// Main runs a package's tests (run) and returns the exit code. It has to be called by TestMain of packages that use
// Mount or MountMirror: in the process of a server, it serves the file system instead of running tests.
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

// serve answers requests until the connection ends, or the test's process.
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
			// Requests aren't read any more. If they were read and not answered, the callers that wait for them
			// couldn't be killed.
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
		return nil // the caller doesn't wait for an answer any more
	case err != nil:
		return err
	}
	if out := answer(buf[:n], answers); out != nil {
		_, _ = unix.Write(device, out) // fails if the caller doesn't wait any more
	}
	return nil
}
