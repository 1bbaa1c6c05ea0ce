package volumestate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/kit/safeopen"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
)

// Stages stages each device once per node, however many volumes of pods use the device, and unstages it when no volume
// uses it any more (see volume.Stager). It is safe for concurrent use.
//
// The devices and their users are recorded on disk, so that the records survive a restart of the agent:
//
//	staged/HASH/device          the plugin's name, the device's key and directory
//	staged/HASH/users/UID/NAME  an empty file for each volume of a pod that uses it; not empty if it only may use it
//
// The file "device" is written before the device is staged, and removed after the device was unstaged. A user's file is
// written before the user's volume is mounted, and removed after the volume was unmounted. The directory of the device
// itself belongs to the plugin: a kubelet that takes over fails on foreign files in it.
//
// A pod can end even if its devices can't be unstaged: such a device stays staged, without users, until Sweep unstages
// it.
type Stages struct {
	// Left is filled when Leave couldn't unstage a device.
	Left wake.Slot

	root    string
	layout  Layout
	plugins []volume.Stager
	ops     *operations.Group

	mu     sync.Mutex
	staged map[string]bool                // records of the devices that this agent has staged, by their directories
	noted  map[record]v1.UniqueVolumeName // the devices that InUse has found, and those without users
	failed map[record]error               // why devices without users aren't unstaged
	// unsure has the records that InUse couldn't read, the directories of devices with notes that it couldn't read, and
	// the plugins with such notes of pods' volumes.
	unsure map[string]bool
	found  []v1.UniqueVolumeName // see Found
}

// User is a volume of a pod that uses a device.
type User struct {
	UID types.UID
	// Name is the name of the volume's directory.
	Name string
}

// NewStages returns Stages for the plugins' devices below the root directory.
func NewStages(root string, plugins []volume.Stager, c operations.Config) *Stages {
	return &Stages{Left: wake.NewSlot(), root: root, layout: NewLayout(filepath.Join(root, "pods")), plugins: plugins,
		ops: operations.New(c), staged: map[string]bool{}, noted: map[record]v1.UniqueVolumeName{},
		failed: map[record]error{}}
}

const (
	stagedDir  = "staged"
	pluginsDir = "plugins/"
	// deviceVersion is the version of the format of the file "device", and maxDevice its maximum size in bytes.
	deviceVersion = 1
	maxDevice     = 256 << 10
)

// device is the record of a device.
type device struct {
	Plugin string `json:"plugin"`
	Key    string `json:"key"`
	// Dir is the device's directory, relative to the root directory.
	Dir string `json:"dir"`
}

// record is the path of a device's record, staged/HASH.
type record string

func (r record) file() string { return filepath.Join(string(r), "device") }

func (r record) user(u User) string { return filepath.Join(string(r), "users", string(u.UID), u.Name) }

func (s *Stages) dir() string { return filepath.Join(s.root, stagedDir) }

// recordOf returns the path of a device's record. The record's name is a hash, because keys may have any length and
// characters.
func (s *Stages) recordOf(d device) record {
	sum := sha256.Sum256([]byte(d.Plugin + "\x00" + d.Key))
	return record(filepath.Join(s.dir(), hex.EncodeToString(sum[:])))
}

// check returns an error unless the device's directory is below the directory "plugins": the device's directory is
// removed after the device was unstaged.
func (d device) check() error {
	if d.Dir != filepath.Clean(d.Dir) || !strings.HasPrefix(d.Dir, pluginsDir) {
		return fmt.Errorf("the plugin %s has the directory %q for it, which isn't below %s", d.Plugin, d.Dir,
			pluginsDir)
	}
	return nil
}

// read reads a device's record. The error is fs.ErrNotExist if there is none: the device isn't staged.
func (s *Stages) read(r record) (device, error) {
	var d device
	text, err := safeopen.ReadRegular(r.file(), maxDevice)
	if errors.Is(err, fs.ErrNotExist) {
		return device{}, err
	}
	if err == nil {
		err = checkpoint.Open(text, deviceVersion, &d)
	}
	if err == nil {
		err = d.check()
	}
	if err == nil && s.recordOf(d) != r {
		err = errors.New("it is the record of another device")
	}
	switch {
	case errors.Is(err, checkpoint.ErrNewer):
		return device{}, fmt.Errorf("read the record %s of a staged device: %w: install that version again",
			r.file(), err)
	case err != nil:
		return device{}, fmt.Errorf("read the record %s of a staged device: %w: unmount the device, and remove %s",
			r.file(), err, r)
	}
	return d, nil
}

// place is the place of the user's volume.
func (u User) place(plugin volume.Plugin) Place {
	return Place{UID: u.UID, Plugin: PluginDir(plugin.Name()), Name: u.Name}
}

// Device returns the key of the device of this plugin that a volume of a pod uses, according to the records; it is
// empty if the records name no device or several.
func (s *Stages) Device(plugin volume.Stager, u User) (key string) {
	devices, err := s.devicesOf(plugin, u)
	if err != nil || len(devices) != 1 {
		return ""
	}
	for _, d := range devices {
		key = d.Key
	}
	return key
}

// devicesOf returns the devices of this plugin that the volume certainly uses, by the records.
func (s *Stages) devicesOf(plugin volume.Stager, u User) (map[record]device, error) {
	all, err := s.records()
	found := map[record]device{}
	for _, r := range all {
		if mark, e := os.Lstat(r.user(u)); e != nil || mark.Size() > 0 {
			continue
		}
		d, e := s.read(r)
		if err = errors.Join(err, e); e == nil && d.Plugin == plugin.Name() {
			found[r] = d
		}
	}
	return found, err
}

// enter records a user.
func (r record) enter(u User) error { return r.write(u, os.O_TRUNC, "") }

// write writes a user's file, with this flag of open(2).
func (r record) write(u User, flag int, text string) error {
	if err := os.MkdirAll(filepath.Dir(r.user(u)), 0o700); err != nil {
		return err
	}
	mark, err := os.OpenFile(r.user(u), os.O_CREATE|os.O_WRONLY|flag, 0o600)
	if flag == os.O_EXCL && errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = mark.WriteString(text)
	return errors.Join(err, mark.Close())
}

// Enter stages the device of a volume unless it is staged.
func (s *Stages) Enter(ctx context.Context, plugin volume.Stager, q volume.Request, u User) error {
	key, dir := plugin.Device(q.Spec)
	if key == "" {
		return nil
	}
	below, err := filepath.Rel(s.root, dir)
	if err != nil {
		return fmt.Errorf("stage the device %s: %w", key, err)
	}
	d := device{plugin.Name(), key, below}
	r := s.recordOf(d)
	op := s.ops.Start(ctx, operations.Task{
		Key: operations.Key(r), Kind: "enter " + string(u.UID) + "/" + u.Name,
		Do: func(ctx context.Context, op *operations.Operation) error {
			if err := s.write(r, d); err != nil {
				return err
			}
			return s.enter(ctx, r, plugin, volume.Staging{Device: key, Spec: q.Spec, Dir: dir, Pod: q.Pod,
				Objects: q.Objects, InUse: q.InUse, Say: saying(op, q.Say)}, u)
		},
	})
	if err := op.Wait(ctx); err != nil && !op.Ended() {
		op.Cancel() // the operation is for this volume only, and its mount was cancelled
		<-op.Done() // otherwise the operation could write the user's file after Leave has searched for it
	}
	err = op.Err()
	if awaits, ok := errors.AsType[*volume.AwaitsError](err); err == nil || ok && awaits.Step != "" {
		return err // nothing was to be staged yet
	}
	return fmt.Errorf("stage the device %s: %w", key, err)
}

// saying returns a Say that reports to an operation, and to the caller that waits for it.
func saying(op *operations.Operation, caller volume.Say) volume.Say {
	return func(text string) {
		op.Waits(text)
		caller.Waits(text)
	}
}

// write writes a device's record unless it is there. It survives a loss of power: without it, nobody would unstage
// the device.
func (s *Stages) write(r record, d device) error {
	if err := d.check(); err != nil {
		return err
	}
	known, err := s.read(r)
	switch {
	case err == nil && known.Dir != d.Dir:
		return fmt.Errorf("it is still staged at %s instead of %s: stop the pods that use it", known.Dir, d.Dir)
	case err == nil:
		return nil
	case errors.Is(err, checkpoint.ErrNewer):
		return err
	}
	// A damaged record is replaced: the same device has the same directory.
	if err := checkpoint.WriteFile(r.file(), deviceVersion, d); err != nil {
		return err
	}
	return errors.Join(atomicfile.SyncDir(s.dir()), atomicfile.SyncDir(s.root))
}

// enter records the user, and stages the device.
func (s *Stages) enter(ctx context.Context, r record, plugin volume.Stager, g volume.Staging, u User) error {
	if err := r.enter(u); err != nil {
		return err
	}
	s.mu.Lock()
	ready := s.staged[string(r)]
	s.mu.Unlock()
	_, err := plugin.Note(g.Dir)
	// If there is no note, perhaps nothing is staged. A volume that was attached may have been detached since.
	if _, attaches := plugin.(volume.Attacher); ready && err == nil && !attaches {
		return nil
	}
	users, err := r.users()
	if err != nil {
		return err
	}
	g.Used = slices.ContainsFunc(users, func(other User) bool { return other != u && s.uses(plugin, other, g.Device) })
	if err := plugin.Stage(ctx, g); err != nil {
		return err
	}
	s.mark(r, true)
	return nil
}

// uses reports whether the user's volume uses, or may use, the device. If it does, the device must not be unstaged for
// another user.
func (s *Stages) uses(plugin volume.Stager, u User, device string) bool {
	n, err := plugin.Note(s.layout.Place(u.place(plugin)).Dir)
	return isUnread(err) || n.Device == device
}

func (s *Stages) mark(r record, staged bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.failed, r); staged {
		s.staged[string(r)] = true
	} else {
		delete(s.staged, string(r))
	}
}

// Leave removes an unmounted volume of this plugin from the users of its device, and unstages the device if no other
// volume uses it. If plugin and u.Name are empty, it does so for all volumes of the pod. Devices of plugins that aren't
// in this build stay staged, and so do those that can't be unstaged. say receives the reason for which Leave waits.
func (s *Stages) Leave(ctx context.Context, plugin string, u User, say volume.Say) error {
	all, err := s.records()
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range all {
		users, err := r.usersOf(u.UID)
		if err != nil {
			errs = append(errs, err)
		}
		for _, one := range users {
			if u.Name != "" && one.Name != u.Name {
				continue
			}
			d, err := s.read(r)
			if err == nil && (plugin != "" && d.Plugin != plugin || s.plugin(d) == nil) {
				break
			}
			err = s.leave(ctx, r, one, say)
			if _, left := errors.AsType[leftError](err); left {
				s.Left.Wake()
				continue
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// leftError is the error of a device without users that couldn't be unstaged.
type leftError struct{ error }

func (e leftError) Unwrap() error { return e.error }

// Sweep removes the users whose pods don't exist any more, and unstages the devices that have no other users. The
// function there reports whether a pod exists.
func (s *Stages) Sweep(ctx context.Context, there func(types.UID) bool) error {
	all, err := s.records()
	if err != nil {
		return err
	}
	var errs []error
	var leaving []*operations.Operation // concurrently: a driver may hang
	for _, r := range all {
		users, err := r.users()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, u := range users {
			if !there(u.UID) {
				leaving = append(leaving, s.beginLeave(ctx, r, u, nil))
			}
		}
		if len(users) == 0 {
			leaving = append(leaving, s.beginLeave(ctx, r, User{}, nil))
		}
	}
	for _, op := range leaving {
		errs = append(errs, leaveError(op.Wait(ctx)))
	}
	return errors.Join(errs...)
}

func (s *Stages) leave(ctx context.Context, r record, u User, say volume.Say) error {
	return leaveError(s.beginLeave(ctx, r, u, say).Wait(ctx))
}

func leaveError(err error) error {
	if err != nil {
		return fmt.Errorf("unstage a device: %w", err)
	}
	return nil
}

func (s *Stages) beginLeave(ctx context.Context, r record, u User, say volume.Say) *operations.Operation {
	return s.ops.Start(ctx, operations.Task{
		Key: operations.Key(r), Kind: "leave " + string(u.UID) + "/" + u.Name, Undoes: true,
		Do: func(ctx context.Context, op *operations.Operation) error {
			return s.left(ctx, r, u, saying(op, say))
		},
	})
}

// left removes the user's file, and unstages the device if it has no other user. If the agent crashes in between, Sweep
// finds a device without users.
func (s *Stages) left(ctx context.Context, r record, u User, say volume.Say) error {
	users, err := r.users()
	if err != nil {
		return err
	}
	for _, other := range users {
		if other != u {
			return r.forget(u)
		}
	}
	d, err := s.read(r)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	staged := err == nil
	plugin := s.plugin(d)
	if staged && plugin == nil {
		return fmt.Errorf("the device %s at %s is left, as this build has no plugin %s", d.Key, d.Dir, d.Plugin)
	}
	s.mark(r, false)
	if staged {
		s.noteInUse(r, d) // the device's volume may be mounted until the device is unstaged
	}
	if err := r.forget(u); err != nil {
		return err
	}
	if staged {
		if err := s.unstage(ctx, plugin, d, say); err != nil {
			s.mu.Lock()
			s.failed[r] = err
			s.mu.Unlock()
			return leftError{err}
		}
	}
	return s.remove(ctx, r)
}

// remove removes the record of a device that is gone from this node.
func (s *Stages) remove(ctx context.Context, r record) error {
	if err := teardown.Remove(ctx, s.dir(), filepath.Base(string(r))); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.noted, r)
	delete(s.failed, r)
	return nil
}

// unstage unstages a device and removes its directory.
func (s *Stages) unstage(ctx context.Context, plugin volume.Stager, d device, say volume.Say) error {
	dir := filepath.Join(s.root, d.Dir)
	if err := plugin.Unstage(ctx, volume.Staging{Device: d.Key, Dir: dir, Say: say}); err != nil {
		return fmt.Errorf("device %s at %s: %w", d.Key, d.Dir, err)
	}
	return teardown.Remove(ctx, filepath.Dir(dir), filepath.Base(dir))
}

// plugin returns the plugin of a device; nil if this build doesn't have it.
func (s *Stages) plugin(d device) volume.Stager {
	for _, p := range s.plugins {
		if p.Name() == d.Plugin {
			return p
		}
	}
	return nil
}

// forget removes a user's file.
func (r record) forget(u User) error {
	if u == (User{}) {
		return nil
	}
	if err := os.Remove(r.user(u)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(filepath.Dir(r.user(u))) // fails unless this was the pod's last user file for the device
	return nil
}

// records lists the records of devices.
func (s *Stages) records() ([]record, error) {
	names, err := list(s.dir())
	var all []record
	for _, n := range names {
		if sum, err := hex.DecodeString(n); err == nil && len(sum) == sha256.Size {
			all = append(all, record(filepath.Join(s.dir(), n)))
		}
	}
	return all, err
}

func (r record) users() ([]User, error) {
	uids, err := list(filepath.Join(string(r), "users"))
	var users []User
	for _, uid := range uids {
		some, e := r.usersOf(types.UID(uid))
		users, err = append(users, some...), errors.Join(err, e)
	}
	return users, err
}

// usersOf returns the users of one pod.
func (r record) usersOf(uid types.UID) ([]User, error) {
	names, err := list(filepath.Join(string(r), "users", string(uid)))
	users := make([]User, len(names))
	for i, n := range names {
		users[i] = User{uid, n}
	}
	return users, err
}

func list(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

// Stop cancels all operations, and returns those that are still running when ctx ends.
func (s *Stages) Stop(ctx context.Context) []*operations.Operation { return s.ops.Stop(ctx) }
