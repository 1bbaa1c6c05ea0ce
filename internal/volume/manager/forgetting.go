package manager

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
)

// Held lists the volumes of pods, sorted by pods' UIDs and names, and the staged devices that other programs may hold.
func (m *Manager) Held() ([]volumestate.Held, error) {
	uids, err := m.layout.UIDs()
	var list []volumestate.Held
	for _, uid := range uids {
		there, e := m.layout.List(uid)
		err = errors.Join(err, e)
		for _, p := range there {
			if f, ok := m.pluginOf(p).(volume.Forgetter); ok {
				if h, ok := m.describe(p, f); ok {
					list = append(list, h)
				}
			}
		}
	}
	devices, e := m.stages.Held(func(u volumestate.User) bool { return m.wanted(u.UID) })
	slices.SortFunc(devices, func(a, b volumestate.Held) int { return cmp.Compare(a.Device, b.Device) })
	return append(list, devices...), errors.Join(err, e)
}

// describe describes a volume for Held. If the volume has no note, no other program holds it, and ok is false.
func (m *Manager) describe(p volumestate.Place, f volume.Forgetter) (h volumestate.Held, ok bool) {
	n, err := f.Note(m.layout.Place(p).Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return h, false
	}
	h = volumestate.Held{User: volumestate.User{UID: p.UID, Name: p.Name}, Program: n.Program, Handle: n.Handle,
		Wanted: m.wanted(p.UID)}
	m.mu.Lock()
	i := slices.IndexFunc(m.actual.Of(p.UID), func(e *volumestate.Mounted) bool { return e.Place == p })
	h.Mounted = i >= 0
	m.mu.Unlock()
	key := volumestate.Key(p)
	_, failed := m.ops.Failed(key, volumestate.Teardown)
	h.Waits = volumestate.Doings(m.ops.On(key))
	switch {
	case h.Waits != "":
	case failed != nil:
		h.Waits = failed.Error()
	case err != nil:
		h.Waits = err.Error()
	}
	return h, true
}

// wanted reports whether a pod is desired and isn't being deleted.
func (m *Manager) wanted(uid types.UID) bool {
	p := m.conf.Pod(uid)
	return p != nil && p.DeletionTimestamp == nil
}

// Forget removes a volume of a pod, given by the name of its directory, without calling the program that holds it. It
// also removes the volume's device if no other volume uses the device, and returns the device's key, or an empty one.
// The program may still record that this node holds the volume. The error is a *volumestate.Refusal if there is no such
// volume, or if the volume may be in use. If ctx ends, the operation continues.
func (m *Manager) Forget(ctx context.Context, uid types.UID, name string) (device string, err error) {
	for what, text := range map[string]string{"pod UID": string(uid), "volume name": name} {
		if err := safeopen.Check(what, text); err != nil || len(text) > maxName {
			return "", volumestate.Refuse("the %s can't be one: write POD_UID/NAME, as `deckhand volumes` does", what)
		}
	}
	there, err := m.layout.List(uid)
	if err != nil {
		return "", err
	}
	var other string
	for _, at := range there {
		f, ok := m.pluginOf(at).(volume.Forgetter)
		switch {
		case at.Name != name:
		case ok:
			return m.forget(ctx, at, f)
		default:
			other = at.Plugin
		}
	}
	if other != "" {
		return "", volumestate.Refuse("volume %s of pod %s is held by no driver (%s), so that there is nothing to "+
			"forget: `deckhand why POD` says why it isn't removed", name, uid, other)
	}
	return "", volumestate.NotHeld(string(uid) + "/" + name)
}

// maxName is the maximum length of a name of a directory.
const maxName = 255

func (m *Manager) forget(ctx context.Context, at volumestate.Place, f volume.Forgetter) (device string, err error) {
	if err := m.unused(at.UID); err != nil {
		return "", err
	}
	for _, op := range m.ops.On(volumestate.Key(at)) {
		if op.Kind() == volumestate.Teardown { // the teardown may be waiting for the program
			op.Cancel()
		}
	}
	without := &forgetting{Forgetter: f, stages: m.stages, at: at}
	op := m.ops.Start(ctx, operations.Task{Key: volumestate.Key(at), Kind: volumestate.Forget, Undoes: true,
		Owner: string(at.UID), Do: func(ctx context.Context, op *operations.Operation) error {
			if err := m.unused(at.UID); err != nil {
				return err
			}
			return m.tearDown(ctx, at, without, op.Say)
		}})
	if err := op.Wait(ctx); err != nil {
		return "", err
	}
	m.log.Info("A volume was forgotten, and its driver wasn't called: that may still think that this node holds it",
		"podUID", at.UID, "volumeName", at.Name)
	return without.device, nil
}

// ForgetDevice removes a staged device like Forget. No volume of a pod may use it any more.
func (m *Manager) ForgetDevice(ctx context.Context, key string) error {
	err := m.stages.ForgetDevice(ctx, key, func(u volumestate.User) error { return m.unused(u.UID) })
	if err == nil {
		m.reportInUse()
		m.log.Info("A staged volume was forgotten, and its driver wasn't called: that may still think that this node "+
			"holds it", "volumeName", key)
	}
	return err
}

// unused refuses a pod that is desired, and one with containers that may run.
func (m *Manager) unused(uid types.UID) error {
	m.mu.Lock()
	prepared := m.desired[uid] != nil
	m.mu.Unlock()
	switch p := m.conf.Pod(uid); {
	case p != nil && p.DeletionTimestamp == nil:
		return volumestate.Refuse("pod %s/%s (%s) is wanted: delete it first, or remove its manifest", p.Namespace,
			p.Name, uid)
	case m.conf.Running(uid):
		return volumestate.Refuse("containers of pod %s may still run: try again once they have ended", uid)
	case prepared:
		return volumestate.Refuse("pod %s is still being stopped: try again in a moment", uid)
	}
	return nil
}

// forgetting is a plugin that releases a volume and its device without calling the program that holds them.
type forgetting struct {
	volume.Forgetter
	stages *volumestate.Stages
	at     volumestate.Place
	// device is the key of the device that was released.
	device string
}

// Unmount implements volume.Unmounter.
func (f *forgetting) Unmount(ctx context.Context, at volume.Place, _ volume.Say) (err error) {
	if err := f.Forget(ctx, at.Dir, false); err != nil {
		return err
	}
	f.device, err = f.stages.Forget(ctx, f.Forgetter,
		volumestate.User{UID: f.at.UID, Name: filepath.Base(at.Dir)})
	return err
}
