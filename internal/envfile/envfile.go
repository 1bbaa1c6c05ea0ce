// Package envfile reads env files: files in a pod's volume that variables of its
// containers come from (fileKeyRef, KEP-3721).
//
// A pod has written what is read here, so a file is opened with care, no more of
// it is read than may count, and no error quotes it: it may hold secrets.
package envfile

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// The limits are KEP-3721's ("Size Limit"), in bytes.
const (
	maxFile  = 64 << 10
	maxName  = 128
	maxValue = 32 << 10
)

// Read returns the variables of the env file at path, which is relative to the
// volume's folder dir. dir itself is trusted, nothing below it is: path is followed
// over symbolic links only as long as they stay inside the volume, and nothing but a
// regular file is opened, let alone waited for.
//
// It fails with an error that is fs.ErrNotExist if there is no such file.
func Read(dir, path string) (map[string]string, error) {
	f, err := open(dir, path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("env file %q: %w", path, reason(err))
	}
	vars, err := Parse(text)
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
	// What it is has to be known before it is opened: opening a device may act on it
	// (a watchdog starts), and a pod may make devices.
	found, err := beneath(int(root.Fd()), path)
	if err != nil {
		return nil, fmt.Errorf("env file %q: %w", path, refusal(err))
	}
	defer unix.Close(found)
	var st unix.Stat_t
	if err := unix.Fstat(found, &st); err != nil {
		return nil, fmt.Errorf("env file %q: %w", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return nil, fmt.Errorf("env file %q is not a regular file, so it is not read", path)
	}
	// O_NONBLOCK: a lease that the pod holds on the file would keep the open waiting.
	f, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", found), unix.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("env file %q: %w", path, reason(err))
	}
	return f, nil
}

// attempts is how often a walk is tried that renames elsewhere disturb. A pod could
// disturb it for ever.
const attempts = 100

// beneath finds path below root without opening what is there.
func beneath(root int, path string) (fd int, err error) {
	how := unix.OpenHow{
		Flags: unix.O_PATH | unix.O_CLOEXEC,
		// Another file system below the volume is none that the volume's plugin made.
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	for range attempts {
		fd, err = unix.Openat2(root, path, &how)
		if err != unix.EAGAIN && err != unix.EINTR {
			break
		}
	}
	return fd, err
}

// refusal says what the kernel's refusal to walk means.
func refusal(err error) error {
	switch err {
	case unix.EXDEV:
		return fmt.Errorf("it leads out of its volume (%w): use a path or a relative link inside it", err)
	case unix.ELOOP:
		return fmt.Errorf("its symbolic links go round in circles, or through /proc (%w)", err)
	}
	return err
}

// reason is an error without the path on this node, which is nobody's business in a pod's status.
func reason(err error) error {
	if e, ok := err.(*os.PathError); ok {
		return e.Err
	}
	return err
}
