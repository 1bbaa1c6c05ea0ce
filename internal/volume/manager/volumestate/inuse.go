package volumestate

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
)

// InUse has the names of attached volumes that this node may have in use: a controller must not detach them. It isn't
// safe for concurrent use.
//
// A volume of a pod is held from before its mount begins until everything of it is gone from the node: its teardown
// has succeeded, which unstages the device after its last user. Volumes of an earlier agent are held by their notes.
type InUse struct {
	// places are the held volumes of pods, and devices those that an earlier agent has staged.
	places  map[Place]v1.UniqueVolumeName
	devices func() []v1.UniqueVolumeName
	// dropped are the arguments of Drop since Scan; nil if there is no scan.
	dropped []func(Place) bool
}

// NewInUse returns an InUse without volumes of pods. The function devices returns the names of the devices of an
// earlier agent.
func NewInUse(devices func() []v1.UniqueVolumeName) *InUse {
	return &InUse{places: map[Place]v1.UniqueVolumeName{}, devices: devices}
}

// Add adds the volume of a pod. If name is empty, no controller attaches the volume, and Add does nothing.
func (u *InUse) Add(at Place, name v1.UniqueVolumeName) {
	if name != "" {
		u.places[at] = name
	}
}

// Name returns the name of the held volume of a pod; it is empty if no controller attaches the volume.
func (u *InUse) Name(at Place) v1.UniqueVolumeName { return u.places[at] }

// Drop removes the volumes of pods for which gone is true.
func (u *InUse) Drop(gone func(Place) bool) {
	maps.DeleteFunc(u.places, func(at Place, _ v1.UniqueVolumeName) bool { return gone(at) })
	if u.dropped != nil {
		u.dropped = append(u.dropped, gone)
	}
}

// Scan is called before volumes are searched for on disk, and Found afterwards.
func (u *InUse) Scan() { u.dropped = []func(Place) bool{} }

// Found adds volumes of pods that were found on disk, except those that were dropped since Scan.
func (u *InUse) Found(held map[Place]v1.UniqueVolumeName) {
	for at, name := range held {
		if !slices.ContainsFunc(u.dropped, func(gone func(Place) bool) bool { return gone(at) }) {
			u.Add(at, name)
		}
	}
	u.dropped = nil
}

// List returns the sorted names of the held volumes; it is never nil.
func (u *InUse) List() []v1.UniqueVolumeName {
	names := append([]v1.UniqueVolumeName{}, u.devices()...)
	names = slices.AppendSeq(names, maps.Values(u.places))
	slices.Sort(names)
	return slices.Compact(names)
}

// InUse returns the volumes of pods that may be in use, according to the plugins' notes on disk. It also reads the
// notes of devices (see Devices). It is called after Adopt, and again after an error. Until it succeeds, each volume
// that an unreadable note or record may belong to counts as in use (see Found).
func (s *Stages) InUse() (map[Place]v1.UniqueVolumeName, error) {
	held, unread, unsure := map[Place]v1.UniqueVolumeName{}, map[Place]error{}, map[string]bool{}
	var errs []error
	unclear := func(what string, err error) {
		if err != nil {
			unsure[what] = true
			errs = append(errs, err)
		}
	}
	uids, err := s.layout.UIDs()
	unclear(anything, err)
	for _, uid := range uids {
		places, err := s.layout.List(uid)
		unclear(anything, err)
		for _, at := range places {
			a := s.attacher(at.Plugin)
			if a == nil {
				continue
			}
			n, err := a.Note(s.layout.Place(at).Dir)
			if n.Attached {
				held[at] = volume.UniqueName(a, n.Device)
			}
			if isUnread(err) {
				unread[at] = err
			}
		}
	}
	all, err := s.records()
	unclear(anything, err)
	recorded := map[string]bool{} // the directories of devices
	for _, r := range all {
		d, err := s.read(r)
		if isUnread(err) {
			unclear(string(r), err)
		} else if err == nil { // a device without a record was found by Adopt, or isn't staged
			recorded[filepath.Join(s.root, d.Dir)] = true
			s.noteInUse(r, d)
		}
	}
	for at, err := range unread {
		a := s.attacher(at.Plugin)
		if key := s.Device(a, User{at.UID, at.Name}); key != "" {
			held[at] = volume.UniqueName(a, key)
		} else {
			unclear(a.Name(), err)
		}
	}
	for _, p := range s.plugins {
		if a, ok := p.(volume.Attacher); ok {
			for _, dir := range a.Noted() {
				n, err := a.Note(dir)
				r := s.recordOf(device{Plugin: a.Name(), Key: n.Device})
				if _, e := os.Lstat(r.file()); err == nil && n.Attached && e != nil {
					unclear(string(r), fmt.Errorf("the staged device %s isn't recorded: %w", n.Device, e))
				} else if isUnread(err) && !recorded[dir] {
					unclear(dir, err)
				}
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unsure = unsure
	return held, errors.Join(errs...)
}

// anything is the key in Stages.unsure that means that any volume may be in use.
const anything = ""

// Found stores the names that the node's object listed when the agent started; nil if they can't be read yet. Devices
// then includes those of them that unreadable notes or records may belong to. complete is false if names may be missing
// in the result of Devices.
func (s *Stages) Found(names []v1.UniqueVolumeName) (complete bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.found == nil {
		s.found = names
	}
	return s.found != nil || len(s.unsure) == 0
}

// foundAt returns the key of the device in this directory if the node's object names the device (see Found).
func (s *Stages) foundAt(plugin volume.Stager, dir string) (key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a, attaches := plugin.(volume.Attacher)
	for _, name := range s.found {
		if key, ok := strings.CutPrefix(string(name), plugin.Name()+"/"); ok && attaches && a.Dir(key) == dir {
			return key
		}
	}
	return ""
}

// maybeInUse reports whether a note or record that can't be read may belong to the volume, so that the volume may be in
// use. s.mu is held.
func (s *Stages) maybeInUse(name v1.UniqueVolumeName) bool {
	return slices.ContainsFunc(s.plugins, func(p volume.Stager) bool {
		key, ok := strings.CutPrefix(string(name), p.Name()+"/")
		a, attaches := p.(volume.Attacher)
		return ok && attaches && (s.unsure[anything] || s.unsure[a.Name()] || s.unsure[a.Dir(key)] ||
			s.unsure[string(s.recordOf(device{Plugin: a.Name(), Key: key}))])
	})
}

// Holds reports whether the volume may be in use as an attached volume, according to the notes on disk.
func (s *Stages) Holds(w *Wanted, a volume.Attacher) bool {
	_, device := a.Device(w.Spec)
	return holds(a, device) || holds(a, s.layout.Place(w.Place).Dir)
}

// holds reports whether an attached volume may be in use, according to the note in a directory.
func holds(a volume.Attacher, dir string) bool {
	n, err := a.Note(dir)
	return n.Attached || isUnread(err)
}

// isUnread reports whether the error is that of a note that can't be read.
func isUnread(err error) bool { return err != nil && !errors.Is(err, fs.ErrNotExist) }

// noteInUse adds the device to the result of Devices if the device may be attached.
func (s *Stages) noteInUse(r record, d device) {
	a := s.attacher(PluginDir(d.Plugin))
	if a == nil {
		return
	}
	if !holds(a, filepath.Join(s.root, d.Dir)) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := os.Lstat(r.file()); err == nil { // else it was unstaged meanwhile
		s.noted[r] = volume.UniqueName(a, d.Key)
	}
}

// attacher returns the plugin of attached volumes with directories of this name (see PluginDir); nil if there is none.
func (s *Stages) attacher(dir string) volume.Attacher {
	for _, p := range s.plugins {
		if a, ok := p.(volume.Attacher); ok && PluginDir(a.Name()) == dir {
			return a
		}
	}
	return nil
}

// Devices returns the names of attached devices that haven't been unstaged yet: those that InUse has found, and those
// without users. It also returns the names of volumes that may be in use because a note or record can't be read (see
// Found).
func (s *Stages) Devices() []v1.UniqueVolumeName {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := slices.Collect(maps.Values(s.noted))
	for _, name := range s.found {
		if s.maybeInUse(name) {
			names = append(names, name)
		}
	}
	return names
}

// Attach returns the name of the volume if a controller has to attach it, or else an empty name. The error is that of
// reading an API object.
func (w *Wanted) Attach(ctx context.Context, a volume.Attacher) (v1.UniqueVolumeName, error) {
	if attaches, err := a.Attaches(ctx, w.Objects, w.Spec); err != nil || !attaches {
		return "", err
	}
	key, _ := a.Device(w.Spec)
	return volume.UniqueName(a, key), nil
}
