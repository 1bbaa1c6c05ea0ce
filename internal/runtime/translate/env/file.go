package env

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// The limits in bytes, from KEP-3721 ("Size Limit").
const (
	maxFile  = 64 << 10
	maxName  = 128
	maxValue = 32 << 10
)

// ReadFile returns the variables of the env file at path, relative to the volume's directory dir. dir itself is
// trusted, but nothing below it: symbolic links in path are followed only within the volume, and only regular files
// are opened, without blocking.
//
// It fails with fs.ErrNotExist (wrapped) if the file doesn't exist.
func ReadFile(dir, path string) (map[string]string, error) {
	f, err := open(dir, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("env file %q: %w", path, reason(err))
	}
	vars, err := ParseFile(text)
	if err != nil {
		return nil, fmt.Errorf("env file %q: %w", path, err)
	}
	return vars, nil
}

// open opens a regular file below dir for reading.
func open(dir, path string) (*os.File, error) {
	root, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, fmt.Errorf("the volume of env file %q: %w", path, reason(err))
	}
	defer root.Close()
	// A file system that is mounted below the volume isn't entered, because the volume's plugin didn't create it.
	found, err := safeopen.OpenSameMount(root, path, unix.O_PATH, 0)
	if err != nil {
		return nil, fmt.Errorf("env file %q: %w", path, refusal(err))
	}
	defer found.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(found.Fd()), &st); err != nil {
		return nil, fmt.Errorf("env file %q: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("env file %q is not a regular file, so it is not read", path)
	}
	f, err := safeopen.Reopen(found, unix.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("env file %q: %w", path, reason(err))
	}
	return f, nil
}

// refusal explains why a path was rejected, and what to do.
func refusal(err error) error {
	switch {
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("it leads out of its volume (%w): use a path or a relative link inside it", unix.EXDEV)
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("its symbolic links form a loop, or lead through /proc (%w)", unix.ELOOP)
	}
	return reason(err)
}

// reason returns the error without paths: paths on this node don't belong in a pod's status, and the path in the
// volume is part of the message already.
func reason(err error) error {
	if errno, ok := errors.AsType[unix.Errno](err); ok {
		return errno
	}
	return err
}
