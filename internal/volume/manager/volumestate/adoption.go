package volumestate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
)

// Adopt records the devices that the plugins find on disk, and the volumes of pods that use them, if they aren't
// recorded yet: an earlier agent, such as a kubelet, has other records or none. It is called before the other methods,
// and again after an error. A device whose note can't be read is recorded if the node's object names it (see Found).
//
// A device gets its record after all of its users, and not at all if one of these can't be found or recorded: a device
// without users would be unstaged. A volume whose own note can't be read counts as a user of every device of its plugin
// until it is removed, unless an earlier agent has recorded its device, or this agent has staged the device: such a
// note may stay for long, and would keep all devices that are staged meanwhile.
func (s *Stages) Adopt(ctx context.Context) error {
	var errs []error
	for _, plugin := range s.plugins {
		var devices []device
		for _, dir := range plugin.Noted() {
			below, err := filepath.Rel(s.root, dir)
			if err != nil {
				return err
			}
			n, err := plugin.Note(dir)
			if isUnread(err) {
				n.Device = s.foundAt(plugin, dir)
			}
			if n.Device != "" {
				devices = append(devices, device{plugin.Name(), n.Device, below})
			}
		}
		if len(devices) == 0 {
			continue
		}
		users, unread, err := s.users(plugin)
		if errs = append(errs, unread, err); err != nil {
			continue
		}
		var adopting []*operations.Operation
		for _, d := range devices {
			adopting = append(adopting, s.ops.Start(ctx, operations.Task{
				Key: operations.Key(s.recordOf(d)), Kind: "adopt",
				Do: func(context.Context, *operations.Operation) error { return s.adopt(plugin, d, users) },
			}))
		}
		for i, op := range adopting {
			if err := op.Wait(ctx); err != nil {
				errs = append(errs, fmt.Errorf("record the staged device %s: %w", devices[i].Key, err))
			}
		}
	}
	return errors.Join(errs...)
}

// users returns the volumes of pods that use devices of the plugin, with the devices' keys; the key is empty if the
// note can't be read and no earlier agent has recorded the device. unread are the errors of notes that can't be read.
func (s *Stages) users(plugin volume.Stager) (users map[User]string, unread, err error) {
	uids, err := s.layout.UIDs()
	users, errs := map[User]string{}, []error{err}
	for _, uid := range uids {
		places, err := s.layout.List(uid)
		errs = append(errs, err)
		for _, p := range places {
			if p.Plugin != PluginDir(plugin.Name()) {
				continue
			}
			u := User{UID: uid, Name: p.Name}
			n, err := plugin.Note(s.layout.Place(p).Dir)
			if isUnread(err) {
				unread = errors.Join(unread, fmt.Errorf("volume %s of pod %s: %w", p.Name, uid, err))
				users[u] = s.Device(plugin, u)
			} else if n.Device != "" {
				users[u] = n.Device
			}
		}
	}
	return users, unread, errors.Join(errs...)
}

// adopt records a device, and before that its users.
func (s *Stages) adopt(plugin volume.Stager, d device, users map[User]string) error {
	r := s.recordOf(d)
	s.mu.Lock()
	own := s.staged[string(r)]
	s.mu.Unlock()
	// A recorded device has its users already. A guess would keep it staged after the last of them.
	_, unrecorded := s.read(r)
	for u, key := range users {
		var err error
		_, missing := os.Lstat(r.user(u))
		switch {
		case key == d.Key:
			err = r.enter(u)
		case key == "" && !own && unrecorded != nil:
			err = r.write(u, os.O_EXCL, "guess")
		default:
			continue
		}
		if err == nil && missing != nil && !s.uses(plugin, u, d.Key) {
			err = r.forget(u) // the volume was removed meanwhile, perhaps before Leave could find this user
		}
		if err != nil {
			return fmt.Errorf("volume %s of pod %s: %w", u.Name, u.UID, err)
		}
	}
	return s.write(r, d)
}
