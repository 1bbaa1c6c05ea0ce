package manager

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
)

// Release unmounts and removes the pod's volumes. The pod's directory stays, with its other content. The pod must
// have no containers and get no new ones. Neither Prepare nor PrepareContainer may run for the pod at the same time
// as Release: the volumes that they mount might not be removed. Prepare may run afterwards, even after a failed
// Release: it waits for the rest of the removal.
//
// Release cancels the pod's mounts and updates first. It waits at most Config.Early for operations that hang, and
// then returns an error. Call it again after any error. It never deletes the files of a volume that is still
// mounted.
func (m *Manager) Release(ctx context.Context, uid types.UID) error {
	if err := m.release(ctx, uid); err != nil {
		return fmt.Errorf("remove volumes of pod %s: %w", uid, err)
	}
	return nil
}

// Clean removes everything on disk for the pod: its volumes, like Release, and the rest of its directory, without
// following symbolic links or entering mounts. It returns nil if nothing exists for the pod.
func (m *Manager) Clean(ctx context.Context, uid types.UID) error {
	if err := m.clean(ctx, uid); err != nil {
		return fmt.Errorf("clean up volumes of pod %s: %w", uid, err)
	}
	return nil
}

func (m *Manager) clean(ctx context.Context, uid types.UID) error {
	if err := m.release(ctx, uid); err != nil {
		return err
	}
	if err := m.conf.Claims.Forget(ctx, uid); err != nil {
		return err
	}
	// The pod's directory is removed last: as long as it exists, a restarted agent finds that the clean-up isn't
	// complete.
	return m.remove(ctx, uid, "its directory", func(ctx context.Context, _ volume.Say) error {
		return teardown.Remove(ctx, m.layout.Pods(), string(uid))
	})
}

func (m *Manager) release(ctx context.Context, uid types.UID) error {
	if err := safeopen.Check("pod UID", string(uid)); err != nil {
		return err
	}
	m.mu.Lock()
	delete(m.desired, uid)
	delete(m.unadopted, uid)
	m.mu.Unlock()
	for _, op := range m.ops.Of(string(uid)) {
		if !volumestate.IsTeardown(op.Kind()) {
			op.Cancel()
		}
	}
	for range 2 { // a cancelled mount may have made a directory after the first List
		there, err := m.layout.List(uid)
		if err != nil {
			return err
		}
		m.mu.Lock()
		for _, e := range m.actual.Of(uid) {
			m.actual.Move(e.Place, m.leaving)
		}
		for _, e := range m.leaving.Of(uid) {
			if !slices.Contains(there, e.Place) { // a volume in leaving without a directory
				there = append(there, e.Place)
			}
		}
		m.mu.Unlock()
		if err := m.awaitBriefly(ctx, append(m.tearDownAll(ctx, uid, there), m.ops.Of(string(uid))...)); err != nil {
			return err
		}
	}
	// Volumes that were only partly mounted may have left other directories.
	err := m.remove(ctx, uid, "the volumes' directories", func(ctx context.Context, say volume.Say) error {
		if err := m.stages.Leave(ctx, "", volumestate.User{UID: uid}, say); err != nil {
			return err
		}
		for _, dir := range []string{volumestate.SubPaths, volumestate.Volumes, volumestate.Plugins} {
			if err := teardown.Remove(ctx, m.layout.Pod(uid), dir); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	m.ops.Forget(string(uid))
	m.mu.Lock()
	delete(m.failed, uid)
	m.mu.Unlock()
	m.dropInUse(func(at volumestate.Place) bool { return at.UID == uid })
	return m.holders.GiveBack(uid)
}

// tearDownAll starts to tear down these volumes of a pod concurrently.
func (m *Manager) tearDownAll(ctx context.Context, uid types.UID, there []volumestate.Place) []*operations.Operation {
	var ops []*operations.Operation
	for _, p := range there {
		ops = append(ops, m.ops.Start(ctx, operations.Task{
			Key: volumestate.Key(p), Kind: volumestate.Teardown, Undoes: true, Owner: string(uid),
			Do: func(ctx context.Context, op *operations.Operation) error {
				began := time.Now()
				plugin := m.pluginOf(p)
				if plugin == nil {
					return m.tearDown(ctx, p, nil, op.Waits)
				}
				migrated := m.source(p, plugin).Migrated // as with the kubelet, not of an earlier agent's mount
				err := m.tearDown(ctx, p, plugin, op.Waits)
				m.measured(op, plugin, "volume_unmount", migrated, began, err)
				return err
			},
		}))
	}
	return ops
}

// remove runs the function do as an operation that removes a part of the pod's directory. The argument what is the
// name of that part in messages.
func (m *Manager) remove(ctx context.Context, uid types.UID, what string,
	do func(context.Context, volume.Say) error) error {
	op := m.ops.Start(ctx, operations.Task{
		Key: operations.Key("pods/" + string(uid)), Kind: volumestate.Remove + what, Undoes: true, Owner: string(uid),
		Do: func(ctx context.Context, op *operations.Operation) error { return do(ctx, op.Waits) },
	})
	return m.awaitBriefly(ctx, append(m.ops.Of(string(uid)), op))
}

// awaitBriefly waits until these operations have ended, for at most Config.Early. ops may contain an operation more
// than once.
func (m *Manager) awaitBriefly(ctx context.Context, ops []*operations.Operation) error {
	start := time.Now()
	var jobs []job
	for i, op := range ops {
		if !slices.Contains(ops[:i], op) {
			jobs = append(jobs, job{op, start.Add(m.conf.Early)})
		}
	}
	if err := m.await(ctx, jobs, start, false); err != nil {
		return err
	}
	var errs []error
	for _, j := range jobs {
		ended := j.op.Ended() // read before Err: the operation may end in between
		err := j.op.Err()
		switch {
		case !ended:
			err = m.hanging(j.op)
		case !volumestate.IsTeardown(j.op.Kind()): // it was cancelled
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", subject(j.op), err))
		}
	}
	return errors.Join(errs...)
}

// subject describes, for messages, the volume or the part of a pod's directory that an operation works on.
func subject(op *operations.Operation) string {
	if what, ok := strings.CutPrefix(op.Kind(), volumestate.Remove); ok {
		return what
	}
	return fmt.Sprintf("volume %q", path.Base(string(op.Key())))
}

// pluginOf returns the plugin of a volume by its directory; nil if this build has no such plugin.
func (m *Manager) pluginOf(p volumestate.Place) volume.Plugin {
	for _, plugin := range m.conf.Plugins {
		if volumestate.PluginDir(plugin.Name()) == p.Plugin {
			return plugin
		}
	}
	return nil
}

// source returns the source of the volume at a place, if this agent has mounted it, or if it is one of the desired
// pod's own; else the zero Spec.
func (m *Manager) source(at volumestate.Place, plugin volume.Plugin) volume.Spec {
	m.mu.Lock()
	mounted := append(m.actual.Of(at.UID), m.leaving.Of(at.UID)...)
	m.mu.Unlock()
	for _, e := range mounted {
		if e.Place == at {
			return e.Spec
		}
	}
	if p := m.conf.Pod(at.UID); p != nil {
		for i := range p.Spec.Volumes {
			if s := (volume.Spec{Volume: &p.Spec.Volumes[i]}); s.Name() == at.Name && plugin.Supports(s) {
				return s
			}
		}
	}
	return volume.Spec{}
}

// tearDown unmounts a volume and removes its directories: first the bind mounts of its parts, last the plugin's
// data.
func (m *Manager) tearDown(ctx context.Context, p volumestate.Place, plugin volume.Plugin,
	say volume.Say) error {
	m.mu.Lock()
	m.actual.Move(p, m.leaving)
	m.mu.Unlock()
	m.remounted.Wake()
	place := m.layout.Place(p)
	if s, ok := plugin.(volume.Stager); ok {
		place.Device = m.stages.Device(s, volumestate.User{UID: p.UID, Name: p.Name})
		place.Spec = m.source(p, plugin)
	}
	if err := teardown.Remove(ctx, filepath.Join(m.layout.Pod(p.UID), volumestate.SubPaths), p.Name); err != nil {
		return err
	}
	if u, ok := plugin.(volume.Unmounter); ok {
		if err := u.Unmount(ctx, place, say); err != nil {
			return err
		}
	}
	if err := teardown.Remove(ctx, filepath.Dir(place.Dir), p.Name); err != nil {
		return err
	}
	if s, ok := plugin.(volume.Stager); ok {
		u := volumestate.User{UID: p.UID, Name: p.Name}
		if err := m.stages.Leave(ctx, s.Name(), u, say); err != nil {
			return err
		}
	}
	if err := teardown.Remove(ctx, filepath.Dir(place.Meta), p.Name); err != nil {
		return err
	}
	m.mu.Lock()
	m.leaving.Remove(p)
	m.mu.Unlock()
	m.dropInUse(func(at volumestate.Place) bool { return at == p })
	return nil
}
