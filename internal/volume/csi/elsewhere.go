package csi

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/mounts"
)

// elsewhere are the mounts outside of the agent's directory that a staged volume's device had before the driver was
// called to unstage the volume. As long as one of them exists, the device must not be detached.
//
// The number of a device isn't enough to find the device again, nor is the ID of a mount: the kernel gives both to
// others as soon as they are free. So a mount counts only if it also is at the same path as before.
type elsewhere struct {
	// Boot is the ID of the boot of the machine in which they were found, Device the number of the device.
	Boot   string       `json:"boot"`
	Device string       `json:"device"`
	Mounts []mountPoint `json:"mounts"`
}

// mountPoint is the path of a mount, and the directory of the device that is mounted there.
type mountPoint struct {
	Point string `json:"point"`
	Root  string `json:"root"`
}

// maxElsewhere is the maximum size of the entry keyElsewhere of a record in bytes. Mounts that don't fit in are left
// out.
const maxElsewhere = 16 << 10

// mountedElsewhere is the error for an unstaged volume whose device is still mounted elsewhere.
type mountedElsewhere struct{ device, point string }

func (e *mountedElsewhere) Error() string {
	return fmt.Sprintf("it is unstaged, but its device (%s) is still mounted at %s, so that it can't be detached: "+
		"unmount it there", e.device, e.point)
}

// elsewhere returns the text of the entry keyElsewhere for the volume that is staged in this directory; it is empty if
// the device isn't mounted elsewhere. Only volumes that a controller may detach and that are file systems on a device
// of this machine are considered. A directory that is bound there is none: its file system stays mounted elsewhere.
func (p Plugin) elsewhere(dir string) (string, error) {
	found := elsewhere{Boot: p.drivers.conf.BootID}
	if n, err := p.Note(dir); err != nil || !n.Attached || found.Boot == "" {
		return "", nil // without a note, the caller uses the manager's records
	}
	dir, err := filepath.EvalSymlinks(dir) // the mount table has no symbolic links
	if err != nil {
		return "", err
	}
	own, err := filepath.EvalSymlinks(filepath.Join(p.devices, "../../.."))
	if err != nil {
		return "", err
	}
	all, err := mounts.List("")
	stage := filepath.Join(dir, stageName)
	i := slices.IndexFunc(all, func(m mounts.Entry) bool { return m.Point == stage })
	if i < 0 || all[i].Root != "/" || !strings.HasPrefix(all[i].Source, "/dev/") {
		return "", err
	}
	var text []byte
	found.Device = all[i].Device()
	for _, m := range all {
		switch {
		case m.Device() != found.Device || m.Point == stage:
			continue
		case within(stage, m.Point):
			return "", nil // it is the file system around the place
		case within(m.Point, own):
			continue
		}
		found.Mounts = append(found.Mounts, mountPoint{m.Point, m.Root})
		longer, err := json.Marshal(found)
		if err != nil {
			return "", err
		}
		if len(longer) > maxElsewhere {
			break
		}
		text = longer
	}
	return string(text), nil
}

// within reports whether the path is the directory or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// beginRelease writes to the record that the driver is being called to release the volume. The mounts of a staged
// volume's device elsewhere are added, unless the disk is full: then only the state is overwritten.
func (p Plugin) beginRelease(r releasing, had record) error {
	if r.name == stageName {
		text, err := p.elsewhere(r.dir)
		if err != nil {
			return err
		}
		if text != "" && text != had[keyElsewhere] {
			if err := had.plus(keyElsewhere, text).release(r.dir); !atomicfile.DiskFails(err) {
				return err
			}
		}
	}
	return had.release(r.dir)
}

// stillElsewhere returns a *mountedElsewhere if a mount that the record in this directory names still exists.
func (p Plugin) stillElsewhere(dir string) error {
	had, err := readRecord(dir)
	var of elsewhere
	if err != nil || json.Unmarshal([]byte(had[keyElsewhere]), &of) != nil || of.Boot != p.drivers.conf.BootID {
		return nil // without a record, the caller uses the manager's records
	}
	all, err := mounts.List("")
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.Device() != of.Device || !slices.Contains(of.Mounts, mountPoint{m.Point, m.Root}) {
			continue
		}
		if had[keyUncertain] != released {
			p.drivers.conf.Log.Info("The device of an unstaged volume is still mounted elsewhere, so that it isn't "+
				"detached before it is unmounted there", "plugin", had[keyDriver], "volumeName", had[keyHandle],
				"path", m.Point)
			if err := had.set(dir, released, had[keyBoot]); err != nil {
				return err
			}
		}
		p.drivers.note(dir, "")
		return &mountedElsewhere{bounded(m.Source), bounded(m.Point)}
	}
	return nil
}
