package counters

import (
	"bytes"
	"errors"
	"io/fs"
	"math"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// value reads a file that contains one number.
func (r *Reader) value(controller, group, name string) (uint64, error) {
	text, err := r.file(controller, group, name)
	if err != nil {
		return 0, err
	}
	n, ok := number(bytes.TrimSpace(text))
	if !ok {
		return 0, r.bad(controller, group, name,
			errors.New("it holds no number: "+strconv.Quote(string(text[:min(len(text), 40)]))))
	}
	return n, nil
}

func (r *Reader) signed(controller, group, name string) (int64, error) {
	text, err := r.file(controller, group, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n, r.bad(controller, group, name, err)
}

// limit reads a file that contains a limit: a number, or max. It returns Unlimited for no limit.
func (r *Reader) limit(controller, group, name string) (uint64, error) {
	text, err := r.file(controller, group, name)
	if err != nil {
		return 0, err
	}
	text = bytes.TrimSpace(text)
	if string(text) == "max" {
		return Unlimited, nil
	}
	n, ok := number(text)
	if !ok {
		return 0, r.bad(controller, group, name,
			errors.New("it holds no limit: "+strconv.Quote(string(text[:min(len(text), 40)]))))
	}
	if n >= LeastUnlimited {
		return Unlimited, nil
	}
	return n, nil
}

// keyed reads a file of lines KEY NUMBER.
func (r *Reader) keyed(controller, group, name string, each func(key []byte, value uint64)) error {
	text, err := r.file(controller, group, name)
	if err == nil {
		pairs(text, " ", each)
	}
	return err
}

func pairs(text []byte, separator string, each func(key []byte, value uint64)) {
	for len(text) > 0 {
		line := text
		if end := bytes.IndexByte(text, '\n'); end >= 0 {
			line, text = text[:end], text[end+1:]
		} else {
			text = nil
		}
		key, value, ok := bytes.Cut(line, []byte(separator))
		if !ok {
			continue
		}
		value, _, _ = bytes.Cut(bytes.TrimSpace(value), []byte(" ")) // as in "16 kB"
		if n, ok := number(value); ok {
			each(key, n)
		}
	}
}

func number(text []byte) (n uint64, ok bool) {
	for _, c := range text {
		if c < '0' || c > '9' || n > (math.MaxUint64-9)/10 {
			return 0, false
		}
		n = n*10 + uint64(c-'0')
	}
	return n, len(text) > 0
}

func (r *Reader) path(controller, group, name string) string {
	if !strings.HasPrefix(group, "/") {
		group = "/" + group
	}
	return r.mounts[controller] + group + "/" + name
}

func (r *Reader) bad(controller, group, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: "read", Path: r.path(controller, group, name), Err: err}
}

func (r *Reader) file(controller, group, name string) ([]byte, error) {
	if r.mounts[controller] == "" {
		return nil, &fs.PathError{Op: "read", Path: group + "/" + name,
			Err: errors.New("the kernel offers no cgroup controller " + controller)}
	}
	err := r.enter(controller, group)
	if err == nil {
		var text []byte
		if text, err = r.read(r.dir, name); err == nil {
			return text, nil
		}
	}
	return nil, r.bad(controller, group, name, err)
}

// enter opens a group's directory, and keeps it open: usually several of its files are read in a row.
func (r *Reader) enter(controller, group string) (err error) {
	dir := r.mounts[controller]
	if r.isOpen && r.dirOf == [2]string{dir, group} {
		return nil
	}
	r.leave()
	r.dir, err = open(unix.AT_FDCWD, strings.TrimSuffix(r.path(controller, group, ""), "/"),
		unix.O_PATH|unix.O_DIRECTORY)
	r.isOpen, r.dirOf = err == nil, [2]string{dir, group}
	return err
}

// leave closes the group's directory: before the next call, the group may be replaced by another one with the same
// name.
func (r *Reader) leave() {
	if r.isOpen {
		_ = unix.Close(r.dir)
	}
	r.isOpen = false
}

func open(dir int, name string, flags int) (fd int, err error) {
	for err = unix.EINTR; err == unix.EINTR; {
		fd, err = unix.Openat(dir, name, unix.O_CLOEXEC|flags, 0)
	}
	return fd, err
}

// ReadFile reads a kernel file into the reader's buffer, which the next call overwrites.
func (r *Reader) ReadFile(file string) ([]byte, error) {
	text, err := r.read(unix.AT_FDCWD, file)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: file, Err: err}
	}
	return text, nil
}

func (r *Reader) read(dir int, name string) ([]byte, error) {
	fd, err := open(dir, name, unix.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	size := 0
	for {
		if size == len(r.buf) {
			r.buf = append(r.buf, make([]byte, len(r.buf))...)
		}
		n, err := unix.Read(fd, r.buf[size:])
		if err == unix.EINTR {
			continue
		}
		if errors.Is(err, unix.ENODEV) { // the group was removed after its file was opened
			err = unix.ENOENT
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return r.buf[:size], nil
		}
		size += n
	}
}
