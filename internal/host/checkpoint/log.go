package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// Log is a file with many named records; only a few of them change at a time. Each write appends a line with the
// changed records, made by Seal. If several records have one name, the last one counts. An incomplete line at the end,
// from a write that was interrupted by a crash, is ignored. A Log is not safe for concurrent use.
type Log struct {
	path    string
	version int
	// size is the file's size in bytes; negative if it can't be determined, so that nothing can be appended. whole is
	// the total size of the current records, without outdated ones, at the time when the file was last read or
	// replaced.
	size, whole int64
	// refused is the error for a file of a newer version; nil otherwise.
	refused error
}

// outgrown is the number of bytes that a file may have, in addition to twice the size of its current records, before it
// is replaced.
const outgrown = 256 << 10

// NewLog returns the log in the file at path, in this version of the format.
func NewLog(path string, version int) *Log { return &Log{path: path, version: version, size: -1} }

// Load returns the newest record of each name. If a part of the file is damaged, it returns the other records
// together with an error that describes the damage, and has renamed the file to end in ".corrupt". A file of a
// newer version (ErrNewer) is left alone, and later writes to the log fail.
func (l *Log) Load() (map[string]json.RawMessage, error) {
	Sweep(l.path)
	text, err := os.ReadFile(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	records, damage := map[string]json.RawMessage{}, error(nil)
	good := text[:bytes.LastIndexByte(text, '\n')+1] // without an incomplete last line
	for rest, number := good, 1; len(rest) > 0; number++ {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		rest = after
		var changed map[string]json.RawMessage
		switch err := Open(line, l.version, &changed); {
		case errors.Is(err, ErrNewer):
			l.refused = fmt.Errorf("%s isn't used, and nothing new is kept there: %w; run that version, or delete "+
				"the file", l.path, err)
			return nil, l.refused
		case err != nil:
			damage = errors.Join(damage, fmt.Errorf("line %d: %w", number, err))
			continue
		}
		for name, record := range changed {
			if string(record) == "null" {
				delete(records, name)
			} else {
				records[name] = record
			}
		}
	}
	if damage != nil {
		aside, err := SetAside(l.path)
		if err != nil {
			return records, fmt.Errorf("%s is damaged (%w) and can't be renamed: %w", l.path, damage, err)
		}
		return records, fmt.Errorf("%s is damaged, and not all of it is used: %w; it was renamed to %s", l.path, damage,
			aside)
	}
	if len(good) == len(text) || truncate(l.path, int64(len(good))) == nil {
		l.size = int64(len(good))
	}
	for name, record := range records {
		l.whole += int64(len(name) + len(record))
	}
	return records, nil
}

// Outgrown reports whether the caller has to Replace the log, because nothing can be appended before, or because most
// of the log is outdated.
func (l *Log) Outgrown() bool { return l.size < 0 || l.size > 2*l.whole+outgrown }

// Size is the size of the file in bytes; negative if it can't be determined, in which case the log is Outgrown.
func (l *Log) Size() int64 { return l.size }

// Outgrow makes Outgrown true, so that the caller replaces the log and no outdated record remains on disk.
func (l *Log) Outgrow() { l.size = -1 }

// Append writes the records that have changed; a nil record removes the record of that name. Once Append has returned
// nil, the records survive a loss of power. After an error the previous records count. The log is then Outgrown, unless
// the disk was merely full.
func (l *Log) Append(changed map[string]json.RawMessage) error {
	if l.refused != nil {
		return l.refused
	}
	line, err := l.seal(changed)
	if err != nil {
		return err
	}
	if l.size, err = appendTo(l.path, line, l.size); err != nil {
		return fmt.Errorf("append to %s: %w", l.path, err)
	}
	return nil
}

// truncate is os.Truncate, but doesn't follow a symbolic link.
func truncate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// appendTo appends line to a file of the given size, and returns the new size; negative if that can't be
// determined.
func appendTo(path string, line []byte, size int64) (int64, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	defer f.Close() // Write and Fdatasync report the errors of writing
	if info, err := f.Stat(); err != nil || info.Size() != size {
		return -1, errors.Join(errors.New("somebody else has changed it"), err)
	}
	if _, err := f.Write(line); err != nil {
		// The partial write is undone. Then the next Append needs disk space for its own line only, whereas Replace
		// would need space for all records.
		if failed := f.Truncate(size); failed != nil {
			return -1, errors.Join(err, failed)
		}
		return size, err
	}
	if err := unix.Fdatasync(int(f.Fd())); err != nil {
		return -1, err
	}
	return size + int64(len(line)), nil
}

// Replace replaces the log's content with all records. Once it has returned nil, they survive a loss of power.
// After an error the old content counts.
func (l *Log) Replace(all map[string]json.RawMessage) error {
	if l.refused != nil {
		return l.refused
	}
	line, err := l.seal(all)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return err
	}
	if err := atomicfile.Write(l.path, line, 0o600); err != nil {
		l.whole = max(l.whole, l.size) // keeps Outgrown false until the file has doubled
		return err
	}
	l.size = int64(len(line))
	l.whole = l.size
	return nil
}

func (l *Log) seal(records map[string]json.RawMessage) ([]byte, error) {
	line, err := Seal(l.version, records)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.path, err)
	}
	return append(line, '\n'), nil
}
