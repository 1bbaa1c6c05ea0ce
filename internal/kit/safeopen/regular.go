package safeopen

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// ReadRegular reads a regular file, or the target of a link to one, and fails if it has more than most bytes. It
// doesn't wait for the other end of a pipe. The path is trusted; errors don't repeat it.
func ReadRegular(path string, most int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer f.Close()
	return readRegular(f, most)
}

// ReadRegularIn is ReadRegular for the file called name in the directory dir, below which nothing is trusted: no link
// is followed.
func ReadRegularIn(dir, name string, most int64) ([]byte, error) {
	in, err := os.OpenFile(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer in.Close()
	f, err := OpenNoLinks(in, name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readRegular(f, most)
}

func readRegular(f *os.File, most int64) ([]byte, error) {
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, withoutPath(err)
	case info.IsDir():
		return nil, unix.EISDIR
	case !info.Mode().IsRegular():
		return nil, errors.New("it is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, withoutPath(err)
	}
	if int64(len(text)) > most {
		return nil, fmt.Errorf("it has more than %d bytes, which is the most that is read", most)
	}
	return text, nil
}

func withoutPath(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
