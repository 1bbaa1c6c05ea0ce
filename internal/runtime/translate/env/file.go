package env

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// The limits are KEP-3721's ("Size Limit"), in bytes.
const (
	maxFile  = 64 << 10
	maxName  = 128
	maxValue = 32 << 10
)

// ReadFile returns the variables of the env file at path, which is relative to the
// volume's directory dir. dir itself is trusted, nothing below it is: path is followed
// over symbolic links only as long as they stay inside the volume, and nothing but a
// regular file is opened, let alone waited for.
//
// It fails with an error that is fs.ErrNotExist if there is no such file.
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
	// Another file system below the volume is none that the volume's plugin made.
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

// refusal says what to do about a path that is refused.
func refusal(err error) error {
	switch {
	case errors.Is(err, unix.EXDEV):
		return fmt.Errorf("it leads out of its volume (%w): use a path or a relative link inside it", unix.EXDEV)
	case errors.Is(err, unix.ELOOP):
		return fmt.Errorf("its symbolic links form a loop, or lead through /proc (%w)", unix.ELOOP)
	}
	return reason(err)
}

// reason is an error without a path: one on this node is nobody's business in a pod's
// status, and the one in the volume has been said.
func reason(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
