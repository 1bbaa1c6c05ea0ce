package archives

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// recordVersion is the version of the record file's format. Version 0 had only the content, without version and
// checksum.
const recordVersion = 1

// imported lists the imported archives by file name: the content of the record file.
type imported map[string]entry

// entry is one imported archive. A change of the archive is detected by its size and modification time. If a new
// archive has the same size and time as the old one, users can touch the file to make the agent import it.
type entry struct {
	Size     int64     `json:"size"`
	Modified time.Time `json:"modified"`
	// Images are the references in the archive.
	Images []string `json:"images"`
}

func (e entry) equal(other entry) bool {
	return e.Size == other.Size && e.Modified.Equal(other.Modified) && slices.Equal(e.Images, other.Images)
}

// holds reports whether the file is unchanged since its import, and all its images still exist.
func (e entry) holds(path string, present map[string]bool) bool {
	info, err := os.Stat(path)
	if err != nil || info.Size() != e.Size || !info.ModTime().Equal(e.Modified) {
		return false
	}
	return !slices.ContainsFunc(e.Images, func(ref string) bool { return !present[ref] })
}

// readRecord reads the record. If it is missing, invalid or of a newer version, all archives are imported again and
// the record is rewritten.
func readRecord(path string, log logr.Logger) imported {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var known imported
	if err == nil {
		known, err = parseRecord(text)
	}
	if err != nil {
		log.V(2).Info("The record of imported images can't be used, so all are imported again", "path", path,
			"err", err.Error())
		return nil
	}
	return known
}

func parseRecord(text []byte) (known imported, err error) {
	version, err := checkpoint.Version(text)
	if err != nil {
		return nil, err
	}
	if version == 0 {
		return known, json.Unmarshal(text, &known)
	}
	return known, checkpoint.Open(text, recordVersion, &known)
}

func (i imported) write(path string) error {
	text, err := checkpoint.Seal(recordVersion, i)
	if err != nil {
		return fmt.Errorf("record the imported images: %w", err)
	}
	checkpoint.Sweep(path)
	return atomicfile.WriteVolatile(path, text, 0o600)
}
