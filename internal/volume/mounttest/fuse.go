package mounttest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
)

// File is the name of the only file in the root directory, and Content its content.
const (
	File    = "file"
	Content = "answered\n"
)

// Server serves one mount. Its methods are safe for concurrent use.
type Server struct {
	// control is the connection's directory in fusectl.
	control string

	mu      sync.Mutex // one order at a time
	hung    bool
	process *exec.Cmd
	orders  io.WriteCloser
	done    io.Reader
}

// Mount mounts a read-only FUSE file system at the existing directory dir: a root directory (0755) with one file
// (0644). The kernel caches nothing of it: every stat, open and read is a request to the server. The test has to run as
// root, best in a mount namespace of its own (mounttest.Run), and its package's TestMain has to call Main.
//
// At the end of the test, the connection is aborted, so that all pending requests fail, and all mounts at dir are
// removed. If the test's process is killed, the server ends, and the kernel aborts the connection.
func Mount(t testing.TB, dir string) *Server {
	t.Helper()
	s := mount(t, dir, oneFile)
	// By this first read, the kernel also detects that files here support neither poll nor flush. From now on, opening
	// and closing files doesn't wait for these requests.
	if _, err := os.ReadFile(filepath.Join(dir, File)); err != nil {
		t.Fatalf("the FUSE server doesn't answer: %v", err)
	}
	return s
}

// mount mounts the file system of a server. shows is the value of serverMark.
func mount(t testing.TB, dir, shows string) *Server {
	t.Helper()
	connections := t.TempDir()
	if err := unix.Mount("fusectl", connections, "fusectl", 0, ""); err != nil {
		t.Fatalf("mount fusectl: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(connections, unix.MNT_DETACH) }) // runs after end, which needs the mount
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open /dev/fuse: %v", err)
	}
	dev := os.NewFile(uintptr(fd), "/dev/fuse")
	defer dev.Close() // the server has its own descriptor: the connection has to end with the server
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", fd)
	if err := unix.Mount("fusetest", dir, "fuse.fusetest", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		t.Fatalf("mount a FUSE file system at %s: %v", dir, err)
	}
	s := &Server{}
	t.Cleanup(func() { s.end(t, dir) })
	number, err := connection(dir)
	if err != nil {
		t.Fatalf("find the connection of %s: %v", dir, err)
	}
	s.control = filepath.Join(connections, number)
	if err := s.start(dev, shows); err != nil {
		t.Fatalf("start the FUSE server: %v", err)
	}
	return s
}

// connection returns the name of the mount's connection in fusectl: the minor number of its device.
func connection(dir string) (string, error) {
	// The mount table contains real paths. Only the parent is resolved, because an access to dir may hang.
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

// start starts the server's process.
func (s *Server) start(dev *os.File, shows string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(self, "-test.run=^$") // runs no test, even if TestMain doesn't call Main
	cmd.Env = append(os.Environ(), serverMark+"="+shows)
	cmd.ExtraFiles = []*os.File{dev}
	cmd.Stderr = os.Stderr
	orders, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	done, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.process, s.orders, s.done = cmd, orders, done
	if !s.order(toAnswer) {
		return errors.New("it doesn't obey: does TestMain call mounttest.Main?")
	}
	return nil
}

// order sends an order to the server, and reports whether the server has confirmed it. A server that has ended doesn't.
func (s *Server) order(what byte) bool {
	if _, err := s.orders.Write([]byte{what}); err != nil {
		return false
	}
	var did [1]byte
	_, err := io.ReadFull(s.done, did[:])
	return err == nil && did[0] == what
}

// Hang makes the server stop answering: all later requests wait until Resume or Abort. Earlier requests have been
// answered when Hang returns. A caller that waits for a request can be killed, but isn't interrupted by anything else.
func (s *Server) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.hung {
		s.hung = s.order(toHang)
	}
}

// Resume makes the server answer again, pending requests first.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.hung {
		s.order(toAnswer)
		s.hung = false
	}
}

// Abort ends the connection: all pending and later requests fail with ENOTCONN or ECONNABORTED. The mount stays, but is
// unusable.
func (s *Server) Abort() error {
	f, err := os.OpenFile(filepath.Join(s.control, "abort"), os.O_WRONLY, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil // the last mount of the file system is gone, and the connection with it
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

// AwaitWaiting waits until n requests wait for an answer: then the callers that should hang do hang. It fails the test
// if that takes longer than half a minute.
func (s *Server) AwaitWaiting(t testing.TB, n int) {
	t.Helper()
	// The kernel sends no notification about waiting requests, so their number is polled.
	for end := time.Now().Add(30 * time.Second); s.Waiting() < n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d requests wait for the hung file system, not %d", s.Waiting(), n)
		}
	}
}

// end ends the connection, the mounts and the server, in an order in which no step waits for the server.
func (s *Server) end(t testing.TB, dir string) {
	if s.control != "" {
		if err := s.Abort(); err != nil {
			t.Errorf("abort the connection of %s: %v", dir, err)
		}
	}
	// The test may have made other mounts at dir, too. If the connection wasn't aborted, the last unmount ends it.
	for unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
		continue
	}
	if s.process != nil {
		_ = s.process.Process.Kill() // faster than closing its orders, and the server has no state to lose
		_ = s.process.Wait()         // how the server ended doesn't matter any more
	}
}
