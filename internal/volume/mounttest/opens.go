package mounttest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"
)

// Opens counts the files and directories that are opened in directories.
type Opens struct {
	t  testing.TB
	fd int
}

// WatchOpens counts, from now on, the opens of any process in these directories. Opens with O_PATH don't count.
func WatchOpens(t testing.TB, dirs ...string) *Opens {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	for _, dir := range dirs {
		if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_OPEN); err != nil {
			t.Fatalf("watch %s: %v", dir, err)
		}
	}
	return &Opens{t, fd}
}

// Since returns how many times the directories themselves, and files in them that aren't directories, were opened since
// the last call.
func (o *Opens) Since() (dirs, files int) {
	o.t.Helper()
	buffer := make([]byte, 1<<20)
	n, err := unix.Read(o.fd, buffer)
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		o.t.Fatal(err)
	}
	for events := bytes.NewReader(buffer[:max(n, 0)]); events.Len() > 0; {
		var e unix.InotifyEvent
		if err := binary.Read(events, binary.NativeEndian, &e); err != nil {
			o.t.Fatal(err)
		}
		if _, err := events.Seek(int64(e.Len), io.SeekCurrent); err != nil {
			o.t.Fatal(err)
		}
		switch {
		case e.Mask&unix.IN_ISDIR == 0:
			files++
		case e.Len == 0: // the same event of the parent directory has a name
			dirs++
		}
	}
	return dirs, files
}
