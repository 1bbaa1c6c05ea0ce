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

// Log is a file of many named records that change a few at a time. Each write appends the changed records as one line
// of Seal; the newest record of a name counts. A write that a crash cut short is ignored. A Log is not safe for
// concurrent use.
type Log struct {
	path    string
	version int
	// size is the file's size; negative if it couldn't be found out, so that nothing can be appended. whole is the size
	// of the records that counted when the file was read or replaced.
	size, whole int64
	// refused is set once the file turned out to be a newer version's.
	refused error
}

// outgrown is how much larger than its current records a file may be. A smaller file isn't worth a replacement.
const outgrown = 256 << 10

// NewLog returns the log at a path, of records of this version.
func NewLog(path string, version int) *Log { return &Log{path: path, version: version, size: -1} }

// Load reads the records that count. The error says for a person what couldn't be used: the records that could are
// returned all the same. A file that is damaged has been renamed to end in ".corrupt"; one of a newer version
// (ErrNewer) is left alone, and nothing is written.
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
	good := text[:bytes.LastIndexByte(text, '\n')+1] // without the rest of the last write, which was cut short
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
	if len(good) == len(text) || os.Truncate(l.path, int64(len(good))) == nil {
		l.size = int64(len(good))
	}
	for name, record := range records {
		l.whole += int64(len(name) + len(record))
	}
	return records, nil
}

// Outgrown reports whether the log has to be replaced before anything can be appended, or is mostly outdated.
func (l *Log) Outgrown() bool { return l.size < 0 || l.size > 2*l.whole+outgrown }

// Size is the size of the file in bytes; negative if it couldn't be found out, and the log is Outgrown.
func (l *Log) Size() int64 { return l.size }

// Outgrow makes the next write replace the log, so that no outdated record is left.
func (l *Log) Outgrow() { l.size = -1 }

// Append writes records that changed; one that is nil is removed. They survive a loss of power once it returned nil.
// After an error what was there counts; unless there was only no room for them, the log is Outgrown.
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

// appendTo appends to a file of the given size, and returns the new size; negative if it can't be found out.
func appendTo(path string, line []byte, size int64) (int64, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	defer f.Close() // which has nothing to write any more
	if info, err := f.Stat(); err != nil || info.Size() != size {
		return -1, errors.Join(errors.New("somebody else has changed it"), err)
	}
	if _, err := f.Write(line); err != nil {
		// The partial write is undone: the next one then needs room for itself alone, a replacement for all records.
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

// Replace writes all records, in place of the log's content. They survive a loss of power once it returned nil; after
// an error the old content counts.
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
		l.whole = max(l.whole, l.size) // it isn't Outgrown any more, and tried again when there is that much more
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
