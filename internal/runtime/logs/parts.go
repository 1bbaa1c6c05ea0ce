package logs

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/deckhand-node/deckhand/internal/runtime/logs/layout"
)

const (
	// bufferSize is how much is read at once.
	bufferSize = 32 << 10
	// maxParts is how many files of an instance are read, the newest. Rotation leaves a few; a pod
	// that can write to the directory could make any number.
	maxParts = 256
	// maxLooks is how often a directory is listed that keeps changing meanwhile.
	maxLooks = 20
)

// part is one of the files that an instance's log consists of, opened. It stays
// readable when it is renamed, compressed or removed.
type part struct {
	name layout.Name
	file *os.File
	// text is what is read: the file, or what is unpacked from it; nil before the begin.
	text io.Reader
	// after is the stamp that whatever comes next has a later one than.
	after string
}

func (p *part) close() { _ = p.file.Close() }

func closeAll(parts []*part) {
	for _, p := range parts {
		p.close()
	}
}

// rewind makes text start over.
func (p *part) rewind() error {
	if p.name.Compressed {
		text, err := p.unpack()
		p.text = text
		return err
	}
	p.text = p.file
	_, err := p.file.Seek(0, io.SeekStart)
	return err
}

// unpack returns the text of a compressed part.
func (p *part) unpack() (*bufio.Reader, error) {
	if _, err := p.file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	unpacked, err := gzip.NewReader(p.file)
	if err != nil {
		return nil, fmt.Errorf("unpack %s: %w", p.file.Name(), err)
	}
	return bufio.NewReaderSize(unpacked, bufferSize), nil
}

// writtenBefore says that nothing was written to the file at that time or later.
func (p *part) writtenBefore(t time.Time) bool {
	info, err := p.file.Stat()
	// The kernel's time of a change may be a tick behind the clock that entries have theirs from.
	return err == nil && info.ModTime().Add(time.Second).Before(t)
}

// same says that both are one file.
func (p *part) same(other *part) bool {
	mine, err := p.file.Stat()
	if err != nil {
		return false
	}
	others, err := other.file.Stat()
	return err == nil && os.SameFile(mine, others)
}

// openParts opens what an instance's log consists of now, the oldest first:
// only what comes after that stamp, if it isn't empty. It is fs.ErrNotExist (wrapped) if
// there is nothing of the instance at all.
//
// It opens all of them at once, so that nothing slips by when the log is rotated
// while it is being read: every entry written before is in exactly one of them.
func (r *Reader) openParts(l Log, attempt int, after string) ([]*part, error) {
	directory, err := layout.Open(r.root, l.dir())
	if err != nil {
		return nil, err
	}
	defer directory.Close()
	files, err := listParts(directory, attempt)
	if err != nil {
		return nil, err
	}
	for look := 1; ; look++ {
		parts, gone, err := r.openEach(directory, files, after)
		if err != nil {
			closeAll(parts)
			return nil, err
		}
		again, err := listParts(directory, attempt)
		if err != nil {
			closeAll(parts)
			return nil, err
		}
		if !gone && slices.Equal(files, again) || look == maxLooks {
			return parts, missing(l, attempt, len(files))
		}
		closeAll(parts)
		files = again
	}
}

func missing(l Log, attempt, files int) error {
	if files > 0 {
		return nil
	}
	return &os.PathError{Op: "read", Path: l.dir() + "/" + layout.Current(attempt).String(), Err: fs.ErrNotExist}
}

// listParts lists the files to read. Of one that is about to be compressed, or was
// just now, the file itself counts.
func listParts(directory *layout.ContainerDir, attempt int) ([]layout.Name, error) {
	files, err := directory.Files(attempt)
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(n layout.Name) bool { return n.Temp })
	files = slices.CompactFunc(files, func(a, b layout.Name) bool { return a.Stamp == b.Stamp })
	return files[max(0, len(files)-maxParts):], nil
}

// openEach opens those of the files that come after that stamp, and reports whether some
// were gone.
func (r *Reader) openEach(directory *layout.ContainerDir, files []layout.Name,
	after string) (parts []*part, gone bool, err error) {
	for _, name := range files {
		if name.Stamp != "" && name.Stamp <= after {
			continue
		}
		after = max(after, name.Stamp)
		f, err := directory.Open(name)
		switch {
		case err == nil:
			parts = append(parts, &part{name: name, file: f, after: after})
		case errors.Is(err, fs.ErrNotExist):
			gone = true
		case name.Stamp != "":
			// One bad file doesn't hide the others.
			r.log.V(2).Info("A rotated log is left out", "err", err.Error())
		default:
			return parts, gone, err
		}
	}
	return parts, gone, nil
}
