package filewatch

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// read dispatches the kernel's events until the watcher is closed or a read fails.
func (w *Watcher) read() {
	defer close(w.done)
	defer close(w.events)
	// Room for many events, so that a burst of them takes few reads.
	buf := make([]byte, 64*(unix.SizeofInotifyEvent+unix.NAME_MAX+1))
	for {
		n, err := w.file.Read(buf)
		if err != nil {
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			wd, mask, name, size := decode(rest)
			rest = rest[size:]
			if !w.dispatch(wd, mask, name) {
				return
			}
		}
	}
}

// decode reads the struct inotify_event at the head of b.
func decode(b []byte) (wd int32, mask uint32, name string, size int) {
	wd = int32(binary.NativeEndian.Uint32(b[0:]))
	mask = binary.NativeEndian.Uint32(b[4:])
	size = min(unix.SizeofInotifyEvent+int(binary.NativeEndian.Uint32(b[12:])), len(b))
	padded := b[unix.SizeofInotifyEvent:size]
	if end := bytes.IndexByte(padded, 0); end >= 0 {
		padded = padded[:end]
	}
	return wd, mask, string(padded), size
}

// dispatch translates an event of the kernel and sends the result, if there is one. It returns false if the watcher
// was closed.
func (w *Watcher) dispatch(wd int32, mask uint32, name string) bool {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		return w.send(Event{Op: Rescan})
	}
	w.mu.Lock()
	spots := w.spots[wd] // none: the watch was removed
	w.mu.Unlock()
	for _, s := range spots {
		if e, ok := s.event(mask, name); ok && !w.send(e) {
			return false
		}
	}
	return true
}

func (w *Watcher) send(e Event) bool {
	select {
	case w.events <- e:
		return true
	case <-w.stop:
		return false
	}
}
