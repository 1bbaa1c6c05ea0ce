package manifeststore

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
)

// version is the version of the file's format. Load refuses newer versions, and reads older ones:
//
//   - 1 has records without Base, Generation and Node, because each edit created another pod. Seen is when the
//     record's content was first seen, which is equivalent.
//   - 2 has these fields, and the pod of a record as its content.
//   - 3 has other objects in addition to pods.
//
// A new kind of object needs no new version: an agent that doesn't support the kind reports that, and reads all other
// records.
const version = 3

// ErrNewer is in the error of Load and Save if the file on disk was written by a newer deckhand. The file isn't
// changed.
var ErrNewer = checkpoint.ErrNewer

// Record is the stored form of the last good version of a pod or object.
type Record struct {
	// Origin is the path or URL of the manifest, Document the position in the manifest, from 1.
	Origin   string `json:"origin"`
	Document int    `json:"document"`
	// Kind is the kind of an object that isn't a pod.
	Kind object.Kind `json:"kind,omitempty"`
	// Content is the pod or object before defaults and identity, in canonical form.
	Content json.RawMessage `json:"content"`
	// Since is when the origin first defined the name, Seen when the pod or object was first seen.
	Since time.Time `json:"since"`
	Seen  time.Time `json:"seen"`
	// Base and Generation are the pod's version (see reader.Version) on the node of this name. Base and Node are
	// empty in records of format 1, in which a pod was always created from the record's content.
	Base       string `json:"base,omitempty"`
	Generation int64  `json:"generation"`
	Node       string `json:"node,omitempty"`
	// Place identifies the location of the origin: see Keeper.Place. Agents that don't support it ignore it.
	Place string `json:"place,omitempty"`
	// Stale is why this version was kept although it isn't the newest; empty if it is.
	Stale string `json:"stale,omitempty"`
}

// What is the kind of the record: "pod", "ConfigMap".
func (r Record) What() string {
	if r.Kind == "" {
		return "pod"
	}
	return string(r.Kind)
}

// String is the kind and the origin. It leaves out the content, which may be that of a Secret.
func (r Record) String() string { return r.What() + " of " + r.Origin }

// Store is the checkpoint file of one source. It isn't safe for concurrent use.
type Store struct {
	// DiskFreed wakes parts whose writes failed when a disk can be written again. It may be replaced before a Saver
	// runs.
	DiskFreed *wake.Group

	path   string
	pods   string
	source pod.Source
	// written is the checksum of the records on disk; empty if unknown.
	written string
	// refused is the error of Load and Save if a newer deckhand wrote the file.
	refused error
}

// NewStore returns the checkpoint of a source in dir, which Save creates if necessary (mode 0700). There may be only
// one Store per source and dir at a time. The directory pods has a subdirectory per pod that has run, named by UID.
func NewStore(dir, pods string, source pod.Source) *Store {
	return &Store{DiskFreed: &wake.Group{}, path: filepath.Join(dir, string(source)+".json"), pods: pods,
		source: source}
}

// Ran returns the UIDs of the pods that have run on this node and aren't cleaned up.
func (s *Store) Ran() (uids map[string]bool, err error) {
	entries, err := os.ReadDir(s.pods)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("which pods have run can't be read: %w", err)
	}
	uids = make(map[string]bool, len(entries))
	for _, e := range entries {
		uids[e.Name()] = true
	}
	return uids, nil
}

type content struct {
	Version int             `json:"version"`
	Source  pod.Source      `json:"source"`
	Sum     string          `json:"sum"`
	Records json.RawMessage `json:"records"`
}

// Load returns the last saved records. found is false if there are none or they can't be used. In the latter case the
// error, which is for users, contains the reason: an unreadable file was renamed to end in ".corrupt" (replacing an
// older one), a file of a newer version (ErrNewer) is left unchanged.
func (s *Store) Load() (records []Record, found bool, err error) {
	checkpoint.Sweep(s.path)
	data, err := os.ReadFile(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("the last good pods of source %q can't be read: %w", s.source, err)
	}
	records, sum, err := s.parse(data)
	switch {
	case errors.Is(err, ErrNewer):
		s.refused = fmt.Errorf("the last good pods in %s aren't used, and new ones aren't kept: %w; run that "+
			"version, or delete the file", s.path, err)
		return nil, false, s.refused
	case err != nil:
		return nil, false, s.setAside(err)
	}
	s.written = sum
	return records, true, nil
}

// parse returns the records of a file, and their checksum. The checksum is "" if Save would write the records in
// another format.
func (s *Store) parse(data []byte) ([]Record, string, error) {
	if err := checkpoint.CheckVersion(data, version); err != nil {
		return nil, "", err
	}
	var c content
	if err := json.Unmarshal(data, &c); err != nil {
		return nil, "", err
	}
	if c.Version < 1 || c.Source != s.source {
		return nil, "", fmt.Errorf("it is format %d for source %q", c.Version, c.Source)
	}
	if sum := checkpoint.Sum(c.Records); c.Sum != sum {
		return nil, "", errors.New("its checksum doesn't match")
	}
	if c.Version < version {
		records, err := migrate(c)
		return records, "", err
	}
	var records []Record
	if err := json.Unmarshal(c.Records, &records); err != nil {
		return nil, "", err
	}
	return records, c.Sum, nil
}

// migrate converts records of an older format to the current one.
func migrate(c content) ([]Record, error) {
	var old []struct {
		Record
		Pod json.RawMessage `json:"pod"`
	}
	if err := json.Unmarshal(c.Records, &old); err != nil {
		return nil, err
	}
	records := make([]Record, 0, len(old))
	for _, r := range old {
		if r.Pod == nil {
			return nil, errors.New("a record has no pod")
		}
		r.Content = r.Pod
		if c.Version == 1 {
			r.Generation = 1
		}
		records = append(records, r.Record)
	}
	return records, nil
}

func (s *Store) setAside(why error) error {
	movedTo, err := checkpoint.SetAside(s.path)
	if err != nil {
		return fmt.Errorf("the last good pods in %s are corrupt (%w) and the file can't be renamed: %w", s.path, why,
			err)
	}
	return fmt.Errorf("the last good pods in %s are corrupt and aren't used: %w; the file was renamed to %s; nothing "+
		"needs to be done if all manifests are fine",
		s.path, why, movedTo)
}

// Save replaces the saved records, durably and atomically. It does nothing if they are the same.
func (s *Store) Save(records []Record) error {
	if s.refused != nil {
		return s.refused
	}
	if records == nil {
		records = []Record{}
	}
	raw, err := encode(records)
	if err != nil {
		return fmt.Errorf("the last good pods of source %q can't be encoded: %w", s.source, err)
	}
	sum := checkpoint.Sum(raw)
	if sum == s.written {
		return nil
	}
	data, err := encode(content{Version: version, Source: s.source, Sum: sum, Records: raw})
	if err != nil {
		return fmt.Errorf("the last good pods of source %q can't be encoded: %w", s.source, err)
	}
	// If the write fails, it is uncertain which records are on disk.
	s.written = ""
	if err := s.replace(data); err != nil {
		return fmt.Errorf("the last good pods of source %q can't be kept on disk: %w", s.source, err)
	}
	s.written = sum
	return nil
}

// encode is json.Marshal without escaping '<', '>' and '&'.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

func (s *Store) replace(data []byte) error {
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(s.path, data, 0o600)
}
