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
	// bufferSize is the size of one read in bytes.
	bufferSize = 32 << 10
	// maxParts bounds the files of an instance that are read; the newest count. Rotation leaves a few; a pod that
	// can write to the directory could create any number.
	maxParts = 256
	// maxLooks is how often a directory is listed again because it changed while its files were opened.
	maxLooks = 20
)

// part is one open file of an instance's log. It stays readable when it is renamed, compressed or removed.
type part struct {
	name layout.Name
	file *os.File
	// text is the file's (decompressed) data; nil before the first read.
	text io.Reader
	// after is the exclusive lower bound of the next part's timestamp.
	after string
}

func (p *part) close() { _ = p.file.Close() }

func closeAll(parts []*part) {
	for _, p := range parts {
		p.close()
	}
}

// rewind restarts text at the beginning.
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

// unpack returns the decompressed text of a compressed part.
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

// writtenBefore reports whether the file was last modified before t.
func (p *part) writtenBefore(t time.Time) bool {
	info, err := p.file.Stat()
	// The kernel's modification time may be a tick behind the clock of the entries' timestamps.
	return err == nil && info.ModTime().Add(time.Second).Before(t)
}

// same reports whether p and other are open on the same file.
func (p *part) same(other *part) bool {
	mine, err := p.file.Stat()
	if err != nil {
		return false
	}
	others, err := other.file.Stat()
	return err == nil && os.SameFile(mine, others)
}

// openParts opens the files of an instance's log, oldest first: only those after the timestamp, if it isn't empty.
// The error is fs.ErrNotExist (wrapped) if the instance has no files.
//
// It opens all of them at once, so that no line is missed if the log is rotated during reading: every entry that
// was written before is in exactly one of them.
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

// listParts lists the files to read. If both a file and its compressed version exist, it lists the uncompressed
// one.
func listParts(directory *layout.ContainerDir, attempt int) ([]layout.Name, error) {
	files, err := directory.Files(attempt)
	if err != nil {
		return nil, err
	}
	files = slices.DeleteFunc(files, func(n layout.Name) bool { return n.Temp })
	files = slices.CompactFunc(files, func(a, b layout.Name) bool { return a.Stamp == b.Stamp })
	return files[max(0, len(files)-maxParts):], nil
}

// openEach opens the files whose timestamp is after the given one, and reports whether some were gone.
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
