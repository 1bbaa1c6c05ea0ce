package gc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/pod"
)

const (
	// recordsVersion is the version of the file's format. Readers refuse newer versions.
	recordsVersion = 1
	// saveEvery is the interval between writes of the file while images stay in use and nothing else changes. After a
	// crash, an image that is no longer in use may seem to be unused for that much longer.
	saveEvery = time.Hour
)

// record contains the times of one image.
type record struct {
	Detected time.Time `json:"detected"`
	Used     time.Time `json:"used,omitzero"`
	// inUse means that the image was in use in the last run.
	inUse bool
}

// records contains when images were detected and last used. Unlike the kubelet's, they survive restarts (KEP-4210).
// The caller locks them.
type records struct {
	path   string
	byID   map[string]record
	loaded bool
	// refused is the reason why the file must not be replaced; nil if it may be.
	refused error
	// changed says that the file has to be written again. It isn't set for new times of use of images that are still
	// in use. saved is when the file was last written or read.
	changed bool
	saved   time.Time
}

// sighting is an image that was seen on the node.
type sighting struct {
	id    string
	inUse bool
	// used is when a hold last found the image present, since the previous run; zero if none did.
	used time.Time
}

// see updates the records with the images on the node, and drops the records of other images. If the clock was set back
// after a time was recorded, that time may be in the future. Then it is replaced by the current time, because otherwise
// the image would count as just used until then.
func (r *records) see(now time.Time, seen []sighting) {
	next := make(map[string]record, len(seen))
	for _, s := range seen {
		old, known := r.byID[s.id]
		rec := old
		if rec.Detected.After(now) {
			rec.Detected = now
		}
		if rec.Used.After(now) {
			rec.Used = now
		}
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

// load reads the file on the first call. After an error there are no records.
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
	switch err := r.parse(text, now); {
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

func (r *records) parse(text []byte, now time.Time) error {
	byID := map[string]record{}
	if err := checkpoint.Open(text, recordsVersion, &byID); err != nil {
		return err
	}
	r.byID = byID
	r.anchor(now)
	return nil
}

// anchor gives the times a monotonic reading (pod.Anchored), so that later steps of the clock don't change the images'
// ages: otherwise a short step far forward would make all images too old. It also changes the times to those that the
// present clock would have shown.
func (r *records) anchor(now time.Time) {
	for id, rec := range r.byID {
		rec.Detected, rec.Used = pod.Anchored(rec.Detected, now), pod.Anchored(rec.Used, now)
		r.byID[id] = rec
	}
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

// save writes the file. After a failure, the next run tries again.
func (r *records) save(now time.Time) error {
	r.anchor(now)
	if err := checkpoint.WriteFile(r.path, recordsVersion, r.byID); err != nil {
		return fmt.Errorf("keep when images were last used: %w", err)
	}
	r.changed, r.saved = false, now
	return nil
}
