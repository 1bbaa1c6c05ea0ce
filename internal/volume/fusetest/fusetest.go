// Package fusetest mounts a file system that stops answering when a test tells it to, as
// a network share does whose server is gone.
package fusetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// File is the name of the only file in the root folder, and Content what is in it.
const (
	File    = "file"
	Content = "answered\n"
)

// Server serves one mount. Its methods may be called from any goroutine.
type Server struct {
	// dev and wake are bare descriptors that a thread of its own polls. Go's poller isn't
	// used: it asks a file that is opened whether it can be polled, which a FUSE file system
	// is asked for in turn, while nothing else that is polled can go on.
	dev, wake int
	// control is the connection's folder in fusectl.
	control string

	mu   sync.Mutex // one change of hung at a time
	hung bool

	parked, resumed, ended chan struct{}
}

// Mount mounts a read-only file system at the folder dir, which has to be there: a root
// folder (0755) with one file (0644). Nothing of it is cached: every stat, opening and
// reading is a request. The test has to run as root, best in a mount namespace of its own
// (mounttest.Run).
//
// At the end of the test the connection is aborted, which frees whoever waits for an
// answer, and everything that is mounted at dir by then is taken off. When
// the test's process is killed, the kernel does both.
func Mount(t testing.TB, dir string) *Server {
	t.Helper()
	connections := t.TempDir()
	if err := unix.Mount("fusectl", connections, "fusectl", 0, ""); err != nil {
		t.Fatalf("mount fusectl: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(connections, unix.MNT_DETACH) }) // after the server's end, which needs it
	dev, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open /dev/fuse: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(dev) })
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(wake) })
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", dev)
	if err := unix.Mount("fusetest", dir, "fuse.fusetest", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatalf("mount a FUSE file system at %s: %v", dir, err)
	}
	s := &Server{dev: dev, wake: wake, parked: make(chan struct{}), resumed: make(chan struct{}), ended: make(chan struct{})}
	go s.run()
	t.Cleanup(func() { s.end(t, dir) })
	number, err := connection(dir)
	if err != nil {
		t.Fatalf("find the connection of %s: %v", dir, err)
	}
	s.control = filepath.Join(connections, number)
	// This also tells the kernel once and for all that files here can't be polled.
	if _, err := os.ReadFile(filepath.Join(dir, File)); err != nil {
		t.Fatalf("the FUSE server doesn't answer: %v", err)
	}
	return s
}

// connection is what fusectl calls the mount's connection: the minor number of its device.
func connection(dir string) (string, error) {
	// The mount table has real paths. The folder itself isn't asked, it may hang.
	real, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if err != nil {
		return "", err
	}
	at, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(filepath.Join(real, filepath.Base(dir))))
	if err != nil {
		return "", err
	}
	if len(at) == 0 {
		return "", errors.New("it isn't in the mount table")
	}
	return strconv.Itoa(at[len(at)-1].Minor), nil
}

// run answers until the connection is gone.
func (s *Server) run() {
	defer close(s.ended)
	buf := make([]byte, 128<<10)
	for {
		fds := []unix.PollFd{{Fd: int32(s.dev), Events: unix.POLLIN}, {Fd: int32(s.wake), Events: unix.POLLIN}}
		if _, err := unix.Poll(fds, -1); errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return
		}
		if fds[1].Revents != 0 {
			var count [8]byte
			_, _ = unix.Read(s.wake, count[:]) // empties it: nobody else reads
			s.parked <- struct{}{}
			<-s.resumed
			continue
		}
		n, err := unix.Read(s.dev, buf)
		switch {
		case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			// Who asked doesn't wait any more.
		case err != nil:
			return // ENODEV: aborted or unmounted
		default:
			if out := answer(buf[:n]); out != nil {
				_, _ = unix.Write(s.dev, out) // whoever doesn't wait any more gets none
			}
		}
	}
}

// Hang stops answering: whatever is asked for from now on waits until Resume or Abort. What
// was asked for before is answered by the time it returns. Callers that wait can be killed,
// but nothing else ends their waiting.
func (s *Server) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hung {
		return
	}
	// Requests aren't read any more. If they were read and not answered, a test that
	// is killed would stay for ever: who waits for what was read can't be killed.
	_, _ = unix.Write(s.wake, []byte{1, 1, 1, 1, 1, 1, 1, 1}) // an eventfd that is empty takes any number
	select {
	case <-s.parked:
		s.hung = true
	case <-s.ended:
	}
}

// Resume answers again, first those who wait.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hung {
		return
	}
	s.resumed <- struct{}{}
	s.hung = false
}

// Abort ends the connection: everybody who waits, and whoever asks later, gets ENOTCONN or
// ECONNABORTED. The mount stays, dead.
func (s *Server) Abort() error {
	f, err := os.OpenFile(filepath.Join(s.control, "abort"), os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the last mount of it is gone, and the connection with it
	}
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("1")
	return err
}

// Waiting is how many requests wait for an answer.
func (s *Server) Waiting() int {
	text, err := os.ReadFile(filepath.Join(s.control, "waiting"))
	if err != nil {
		return 0 // the connection is gone
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0
	}
	return n
}

// AwaitWaiting returns once n requests wait for an answer: who is to hang hangs by then. It
// fails the test when that takes longer than half a minute.
func (s *Server) AwaitWaiting(t testing.TB, n int) {
	t.Helper()
	// The kernel tells nobody about it, so it has to be asked.
	for end := time.Now().Add(30 * time.Second); s.Waiting() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d requests wait for the hung file system, not %d", s.Waiting(), n)
		}
	}
}

// end lets go of everything, in an order in which nothing waits for the server.
func (s *Server) end(t testing.TB, dir string) {
	if s.control != "" {
		if err := s.Abort(); err != nil {
			t.Errorf("abort the connection of %s: %v", dir, err)
		}
	}
	// A test may have mounted more there. Without the abort, the last one would end the connection.
	for unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
		continue
	}
	s.Resume()
	<-s.ended
}
