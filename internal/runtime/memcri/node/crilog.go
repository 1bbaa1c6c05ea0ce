package node

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// logFile is a container's log file.
type logFile struct{ f *os.File }

// openLog opens path for appending, and creates it and its directory if they are missing. Like containerd it
// doesn't follow a symbolic link there.
func openLog(path string) (*logFile, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY|unix.O_NOFOLLOW, 0o640)
	if err != nil {
		return nil, err
	}
	return &logFile{f}, nil
}

// Write appends one full line of stream ("stdout" or "stderr").
func (l *logFile) Write(stream, line string) error {
	_, err := fmt.Fprintf(l.f, "%s %s F %s\n", time.Now().Format(time.RFC3339Nano), stream, line)
	return err
}

// Close closes the log file.
func (l *logFile) Close() {
	// Nothing is buffered here, so a failure loses nothing.
	_ = l.f.Close()
}
