package inotify

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// read passes events on until the watcher is closed or breaks down.
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
			event, ok := w.event(wd, mask, name)
			if !ok {
				continue
			}
			select {
			case w.events <- event:
			case <-w.stop:
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

// event says what the kernel's event means, and whether it means anything.
func (w *Watcher) event(wd int32, mask uint32, name string) (Event, bool) {
	if mask&unix.IN_Q_OVERFLOW != 0 {
		return Event{Op: Rescan}, true
	}
	w.mu.Lock()
	watch, known := w.watches[wd]
	w.mu.Unlock()
	if mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT|unix.IN_IGNORED) != 0 {
		// IN_IGNORED also answers our own removal of a watch: then it isn't known.
		return Event{Op: Rescan}, known
	}
	if !known || watch.only != "" && watch.only != name {
		return Event{}, false
	}
	if !watch.named {
		return Event{Op: Rescan}, true
	}
	if name == "" {
		return Event{}, false // the folder's own attributes
	}
	if watch.only != "" && mask&unix.IN_ISDIR != 0 {
		return Event{Op: Rescan}, true // the path came to be a folder
	}
	switch {
	case mask&(unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO) != 0:
		return Event{Name: name, Op: Done}, true
	case mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
		return Event{Name: name, Op: Gone}, true
	case mask&unix.IN_ATTRIB != 0:
		return Event{Name: name, Op: Touched}, true
	default:
		return Event{Name: name, Op: Writing}, true
	}
}
