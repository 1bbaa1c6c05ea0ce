package lockfile

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
)

// watch receives the events of one open file from inotify(7). The kernel queues unread events, up to
// fs.inotify.max_queued_events.
type watch struct {
	file *os.File
	// inotify is nil while the file can't be watched; failure is then the reason.
	inotify *os.File
	failure error
}

const watched = unix.IN_OPEN | unix.IN_CLOSE | unix.IN_ATTRIB | unix.IN_MOVE_SELF | unix.IN_DELETE_SELF

func newWatch(f *os.File) *watch {
	w := &watch{file: f}
	w.open()
	return w
}

func (w *watch) open() {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		w.failure = filewatch.Explain(err)
		return
	}
	// The path in /proc refers to the open file, even if another file is at its path by now.
	if _, err := unix.InotifyAddWatch(fd, fmt.Sprintf("/proc/self/fd/%d", w.file.Fd()), watched); err != nil {
		w.failure = errors.Join(filewatch.Explain(err), unix.Close(fd))
		return
	}
	w.inotify, w.failure = os.NewFile(uintptr(fd), "inotify"), nil
}

func (w *watch) close() error {
	if w.inotify == nil {
		return nil
	}
	return w.inotify.Close()
}

// wait returns the bits of the next inotify events, or 0 if there is no event within timeout; a timeout of 0 means no
// limit. If the file can't be watched, wait only pauses, tries to watch the file, and returns 0. It fails when ctx
// ends.
func (w *watch) wait(ctx context.Context, timeout time.Duration) (uint32, error) {
	if w.inotify == nil {
		pause := filewatch.Every
		if timeout > 0 {
			pause = min(pause, timeout)
		}
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-time.After(pause):
		}
		w.open()
		return 0, nil
	}
	var deadline time.Time
	if timeout > 0 {
		deadline = time.Now().Add(timeout)
	}
	if err := w.inotify.SetReadDeadline(deadline); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = w.inotify.SetReadDeadline(time.Unix(1, 0)) // can't fail, because the call above succeeded
	})
	var buffer [4096]byte
	n, err := w.inotify.Read(buffer[:])
	if !stop() {
		<-ended
		return 0, context.Cause(ctx)
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("watch it: %w", err)
	}
	return events(buffer[:n]), nil
}

// events returns the bits of all inotify events in buffer. The events contain no names, because a file is watched and
// not a directory.
func events(buffer []byte) (bits uint32) {
	for ; len(buffer) >= unix.SizeofInotifyEvent; buffer = buffer[unix.SizeofInotifyEvent:] {
		bits |= binary.NativeEndian.Uint32(buffer[4:]) // inotify_event.mask
	}
	return bits
}

// drain discards the queued events.
func (w *watch) drain() error {
	if w.inotify == nil {
		return nil
	}
	raw, err := w.inotify.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var buffer [4096]byte
		for failed == nil {
			_, failed = unix.Read(int(fd), buffer[:])
		}
	})
	if failed != nil && !errors.Is(failed, unix.EAGAIN) {
		return fmt.Errorf("watch it: %w", failed)
	}
	return err
}
