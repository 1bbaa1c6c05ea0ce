package csi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
)

// record describes a volume that the driver may hold: the file vol_data.json in the volume's
// directory, a JSON object of strings, as the kubelet writes and reads it.
type record map[string]string

// recordName is the name of a record's file, targetName that of the directory at which the driver mounts the volume.
const (
	recordName = "vol_data.json"
	targetName = "mount"
)

// The keys of a record.
const (
	keyDriver    = "driverName"
	keyHandle    = "volumeHandle"
	keyVolume    = "specVolID"
	keyNode      = "nodeName"
	keyLifecycle = "volumeLifecycleMode"
	keyAttached  = "attachmentID"
	// keyArguments is a digest of the arguments of the call: they must not change while it is repeated. keyUncertain
	// says whether a call has begun whose result isn't recorded. keyBoot is the ID of the machine's boot in which the
	// driver was last called to hold the volume. keyAttachment is the UID of the VolumeAttachment of an attached
	// volume; keyContext says that it has a publish_context. keyElsewhere has other mounts of a staged volume's device
	// (see elsewhere). The kubelet has none of them, and ignores them.
	keyArguments  = "deckhand.io/arguments"
	keyUncertain  = "deckhand.io/uncertain"
	keyBoot       = "deckhand.io/boot"
	keyAttachment = "deckhand.io/attachment"
	keyContext    = "deckhand.io/publish-context"
	keyElsewhere  = "deckhand.io/elsewhere"
)

// maxRecord is the maximum size of a record in bytes.
const maxRecord = 64 << 10

// readRecord reads the record in a volume's directory, to which drivers can write. The error is fs.ErrNotExist if there
// is none.
func readRecord(dir string) (record, error) {
	data, err := safeopen.ReadRegularIn(dir, recordName, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fs.ErrNotExist
	}
	var r record
	if err == nil {
		if err = json.Unmarshal(data, &r); err == nil && (r[keyDriver] == "" || r[keyHandle] == "") {
			err = fmt.Errorf("%s or %s is missing", keyDriver, keyHandle)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("the volume's record %s can't be used: %w", filepath.Join(dir, recordName), err)
	}
	return r, nil
}

// same reports whether two records are of the same volume.
func (r record) same(other record) bool {
	return r[keyDriver] == other[keyDriver] && r[keyHandle] == other[keyHandle]
}

// attachedOtherwise reports whether the records are of different attachments of the volume: it was detached in between,
// and the mounts of the earlier attachment are useless.
func (r record) attachedOtherwise(other record) bool {
	return r[keyAttachment] != "" && other[keyAttachment] != "" && r[keyAttachment] != other[keyAttachment]
}

// Values of keyUncertain. They have the same length: see set. released says that the driver has unstaged the volume,
// but that its device is still mounted elsewhere.
const (
	uncertain = "true"
	certain   = "none"
	released  = "gone"
)

// certain reports whether the last call for the volume has succeeded.
func (r record) certain() bool { return r[keyUncertain] == "" || r[keyUncertain] == certain }

// create writes the record before a call that makes the driver hold the volume, and makes its directory. It is durable:
// after a crash of the machine the driver may still hold the volume, and without a record nobody would release it.
func (r record) create(dir, boot string) error {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return r.write(dir, uncertain, boot)
}

// write replaces the record by the one with this state.
func (r record) write(dir, state, boot string) error {
	data, err := r.with(state, boot)
	if err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, recordName), data, 0o600)
}

// succeed records that a call has made the driver hold the volume, in this boot.
func (r record) succeed(dir, boot string) error { return r.set(dir, certain, boot) }

// release records that the driver is being called to release the volume.
func (r record) release(dir string) error { return r.set(dir, uncertain, r[keyBoot]) }

// with returns the text of the record with this state.
func (r record) with(state, boot string) ([]byte, error) {
	r = maps.Clone(r)
	r[keyUncertain], r[keyBoot] = state, boot
	return json.Marshal(r)
}

// plus returns a copy of the record with one more entry.
func (r record) plus(key, value string) record {
	r = maps.Clone(r)
	r[key] = value
	return r
}

// set writes the record with this state. If nothing else changes, only the state's bytes are overwritten, without
// waiting for the disk. A crash of the machine may undo or tear the state. This does no harm: nothing is mounted after
// a crash, so the driver is called anyway. If a new file replaced the old one, the file could be empty after a crash.
func (r record) set(dir, state, boot string) error {
	data, err := r.with(state, boot)
	if err != nil {
		return err
	}
	if had, err := safeopen.ReadRegularIn(dir, recordName, maxRecord); err == nil && len(had) == len(data) {
		first, end := 0, len(data)
		for first < end && had[first] == data[first] {
			first++
		}
		for end > first && had[end-1] == data[end-1] {
			end--
		}
		if end-first <= len(state) {
			return overwrite(dir, data[first:end], int64(first))
		}
	}
	return r.write(dir, state, boot)
}

// overwrite overwrites a part of the record.
func overwrite(dir string, part []byte, at int64) error {
	if len(part) == 0 {
		return nil
	}
	f, err := os.OpenFile(filepath.Join(dir, recordName), os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(part, at)
	return errors.Join(err, f.Close())
}

// removeRecord removes the record, for good.
func removeRecord(dir string) error {
	if err := os.Remove(filepath.Join(dir, recordName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return atomicfile.SyncDir(dir)
}
