package room

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// FullError is the error of a write to a full disk.
type FullError struct {
	// On is the file system; its Point is empty if it couldn't be determined.
	On FileSystem
	// Err is the error of the write.
	Err error
}

func (e *FullError) Error() string {
	switch {
	case e.On.Point == "":
		return fmt.Sprintf("%s: %v", isFull, e.Err)
	case !e.On.Full():
		return fmt.Sprintf("%s: %s: %v", isShort, e.On, e.Err)
	}
	return fmt.Sprintf("%s: %s: %v", isFull, e.On, e.Err)
}

const isFull, isShort = "the disk is full", "the disk has too little room"

// Unwrap returns the error of the write.
func (e *FullError) Unwrap() error { return e.Err }

// Explain returns a FullError for an error of a full disk, and other errors unchanged. The file system in the FullError
// is that of a path in the error, or of one of dirs, on which the write may have failed. If another process has already
// explained the error, Explain returns it unchanged.
func Explain(err error, dirs ...string) error {
	if !atomicfile.DiskFull(err) || strings.Contains(err.Error(), isFull) || strings.Contains(err.Error(), isShort) {
		return err
	}
	return &FullError{On: where(err, dirs), Err: err}
}

// absolute matches absolute paths in the text of an error.
var absolute = regexp.MustCompile(`(^|[\s"'=(])(/[^\s:"')]+)`)

// where finds the file system on which a write failed.
func where(err error, dirs []string) FileSystem {
	var paths []string
	var known *fs.PathError
	if errors.As(err, &known) {
		paths = append(paths, known.Path)
	}
	for _, match := range absolute.FindAllStringSubmatch(err.Error(), -1) {
		paths = append(paths, match[2])
	}
	var first FileSystem
	for i, path := range append(paths, dirs...) {
		f, failed := Measure(path)
		if failed != nil {
			continue
		}
		if f.Full() {
			return f
		}
		// A path in the text of an error may be a path in a container. The path in a PathError of this process, and
		// dirs, are paths on the host.
		if first.Point == "" && (known != nil && i == 0 || i >= len(paths)) {
			first = f
		}
	}
	return first
}
