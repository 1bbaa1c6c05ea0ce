package alarm

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// stalls is the trigger for 100 ms of stalls within 2 s. Without CAP_SYS_RESOURCE, the kernel accepts only windows of a
// multiple of 2 s.
const stalls = "some 100000 2000000\n"

// source is an open Trigger.
type source struct {
	// fd is polled.
	fd int
	// file is the identity of the file whose events the kernel reports.
	file identity
}

// identity distinguishes a file from a later one with the same path.
type identity struct{ device, inode uint64 }

// open puts a trigger in force.
func open(t Trigger) (*source, error) {
	var s *source
	var err error
	switch t.Kind {
	case Stalls:
		s, err = openStalls(t.Path)
	case Usage:
		s, err = openUsage(t.Path, t.Bytes)
	case Changes:
		s, err = openChanges(t.Path)
	}
	if err != nil {
		return nil, fmt.Errorf("wait for an event of %s: %w", t.Path, err)
	}
	return s, nil
}

func openStalls(path string) (*source, error) {
	s, err := openFile(path, unix.O_RDWR)
	if err == nil {
		if _, err = unix.Write(s.fd, []byte(stalls)); err != nil {
			s.close()
		}
	}
	if err == nil {
		return s, nil
	}
	if errors.Is(err, unix.EOPNOTSUPP) || unix.Access("/proc/pressure/memory", unix.F_OK) != nil {
		err = fmt.Errorf("%w: this kernel doesn't measure memory pressure (PSI): boot it with psi=1", err)
	} else if errors.Is(err, unix.EPERM) {
		err = fmt.Errorf("%w: before Linux 6.5, this needs CAP_SYS_RESOURCE", err)
	}
	return nil, err
}

func openUsage(dir string, bytes uint64) (*source, error) {
	usage, err := openFile(filepath.Join(dir, "memory.usage_in_bytes"), unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer usage.close() // the kernel needs the descriptor only for the registration of the event
	control, err := openFile(filepath.Join(dir, "cgroup.event_control"), unix.O_WRONLY)
	if err != nil {
		return nil, err
	}
	defer control.close()
	event, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	s := &source{fd: event, file: usage.file}
	if _, err := unix.Write(control.fd, fmt.Appendf(nil, "%d %d %d", event, usage.fd, bytes)); err != nil {
		s.close()
		return nil, fmt.Errorf("set a threshold of %d bytes in cgroup.event_control: %w", bytes, err)
	}
	return s, nil
}

func openChanges(path string) (*source, error) {
	s, err := openFile(path, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	if err := s.read(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func openFile(path string, flags int) (*source, error) {
	var fd int
	var err error
	for err = unix.EINTR; err == unix.EINTR; {
		fd, err = unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	}
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	s := &source{fd: fd}
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		s.close()
		return nil, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	s.file = identityOf(&stat)
	return s, nil
}

func identityOf(s *unix.Stat_t) identity { return identity{s.Dev, s.Ino} }

// events returns the events to poll for.
func events(k Kind) int16 {
	if k == Usage {
		return unix.POLLIN
	}
	return unix.POLLPRI
}

// rearm prepares a source for the next event, after poll returned the bits revents. It returns false if there can't be
// another event.
func (s *source) rearm(k Kind, revents int16) bool {
	switch k {
	case Stalls:
		return revents&unix.POLLERR == 0 // the group was removed, or its PSI disabled
	case Usage:
		var counter [8]byte
		_, err := unix.Read(s.fd, counter[:])
		return err == nil
	default:
		return s.read() == nil // POLLERR is part of each event (kernfs)
	}
}

// read reads the file, so that the kernel reports only later changes.
func (s *source) read() error {
	var start [1]byte
	_, err := unix.Pread(s.fd, start[:], 0)
	return err
}

// current reports whether the open file is still the file at the trigger's path.
func (s *source) current(t Trigger) bool {
	path := t.Path
	if t.Kind == Usage {
		path = filepath.Join(path, "memory.usage_in_bytes")
	}
	var stat unix.Stat_t
	return unix.Stat(path, &stat) == nil && identityOf(&stat) == s.file
}

func (s *source) close() { _ = unix.Close(s.fd) }
