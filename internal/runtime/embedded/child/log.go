package child

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// maxLog is the size in bytes at which containerd's log is rotated at its next start; one old log is kept.
const maxLog = 10 << 20

// OpenLog opens the log for appending. containerd writes to the file directly, so no process has to read its output
// after the agent's end.
func OpenLog(path string) (*os.File, error) {
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.Size() > maxLog:
		if err := os.Rename(path, path+".1"); err != nil {
			return nil, fmt.Errorf("containerd's log: %w", err)
		}
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("containerd's log: %w", err)
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("containerd's log: %w", err)
	}
	return f, nil
}

// LastLine returns the last line of a log for messages, empty if there is none.
func LastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if _, err := f.Seek(-4096, io.SeekEnd); err != nil {
		// The log is shorter than 4096 bytes.
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return ""
		}
	}
	text, err := io.ReadAll(io.LimitReader(f, 4096))
	if err != nil {
		return ""
	}
	text = bytes.TrimSpace(text)
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}
