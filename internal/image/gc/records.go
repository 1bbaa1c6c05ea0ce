package gc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
)

const (
	// recordsVersion is the file's format. A reader refuses newer ones.
	recordsVersion = 1
	// saveEvery is how old the file may get while nothing changes but that images are
	// still in use. It bounds by how much an image seems older after a crash: those that
	// are still in use then are seen to be at once.
	saveEvery = time.Hour
)

// record is what is remembered of one image.
type record struct {
	Detected time.Time `json:"detected"`
	Used     time.Time `json:"used,omitzero"`
	// inUse is whether it was, when last looked at.
	inUse bool
}

// records remember since when images are known and when they were last used, also
// across restarts (where the kubelet begins again, KEP-4210). Who uses them locks them.
type records struct {
	path   string
	byID   map[string]record
	loaded bool
	// refused says why the file isn't replaced.
	refused error
	// changed says that the file is missing more than that an image is still in use; saved
	// is when it was written or read.
	changed bool
	saved   time.Time
}

// sighting is an image that was seen on the node.
type sighting struct {
	id    string
	inUse bool
	// used is when it was in use for a moment since the last look; zero if it wasn't.
	used time.Time
}

// see takes in which images there are now; the others are forgotten.
func (r *records) see(now time.Time, seen []sighting) {
	next := make(map[string]record, len(seen))
	for _, s := range seen {
		old, known := r.byID[s.id]
		rec := old
		if !known {
			rec.Detected = now
		}
		if s.used.After(rec.Used) {
			rec.Used = s.used
		}
		if rec.inUse = s.inUse; s.inUse {
			rec.Used = now
		}
		if !known || old.inUse && !s.inUse || old.Used.IsZero() != rec.Used.IsZero() || !s.inUse &&
			!rec.Used.Equal(old.Used) {
			r.changed = true
		}
		next[s.id] = rec
	}
	if len(next) < len(r.byID) {
		r.changed = true
	}
	r.byID = next
}

// load reads the file, once. The error says for a person what can't be used of it;
// there are no records then.
func (r *records) load(now time.Time) error {
	if r.loaded {
		return nil
	}
	r.loaded, r.saved, r.byID = true, now, map[string]record{}
	checkpoint.Sweep(r.path)
	text, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("when images were last used can't be read: %w", err)
	}
	switch err := r.parse(text); {
	case err == nil:
		return nil
	case errors.Is(err, checkpoint.ErrNewer):
		r.refused = fmt.Errorf("%s says when images were last used, but %w: all count as new, and the file is left "+
			"as it is; run that version, or delete the file", r.path, err)
		return r.refused
	default:
		aside, asideErr := checkpoint.SetAside(r.path)
		return errors.Join(fmt.Errorf(
			"%s says when images were last used, but is corrupt: %w; all count as new, and it was renamed to %s",
			r.path, err, aside), asideErr)
	}
}

func (r *records) parse(text []byte) error {
	byID := map[string]record{}
	if err := checkpoint.Open(text, recordsVersion, &byID); err != nil {
		return err
	}
	r.byID = byID
	return nil
}

// due reports whether the file has to be written.
func (r *records) due(now time.Time) bool {
	return r.loaded && r.refused == nil && (r.changed || now.Sub(r.saved) >= saveEvery && r.anyInUse())
}

func (r *records) anyInUse() bool {
	for _, rec := range r.byID {
		if rec.inUse {
			return true
		}
	}
	return false
}

// save writes the file. If that fails, the next look tries again.
func (r *records) save(now time.Time) error {
	if err := checkpoint.WriteFile(r.path, recordsVersion, r.byID); err != nil {
		return fmt.Errorf("keep when images were last used: %w", err)
	}
	r.changed, r.saved = false, now
	return nil
}
