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
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
)

// Stages stages each device once per node, however many volumes of pods use the device, and unstages it when no
// volume uses it any more (see volume.Stager). It is safe for concurrent use.
//
// The users of a device are recorded on disk, so that they survive a restart of the agent:
//
//	plugins/PLUGIN/HASH/globalmount     the staging directory
//	plugins/PLUGIN/HASH/device          the device's name
//	plugins/PLUGIN/HASH/users/UID/NAME  an empty file for each volume of a pod that uses it
//
// The file "device" is written before the device is staged, and removed after the device was unstaged. A user's file
// is written before the user's volume is mounted, and removed after the volume was unmounted.
type Stages struct {
	dir string
	ops *operations.Group

	mu     sync.Mutex
	staged map[string]bool // directories of the devices that this agent has staged
}

// User is a volume of a pod that uses a device.
type User struct {
	UID types.UID
	// Name is the name of the volume's directory.
	Name string
}

// NewStages returns Stages for the devices in dir, which is the directory "plugins" under the root directory.
func NewStages(dir string, c operations.Config) *Stages {
	return &Stages{dir: dir, ops: operations.New(c), staged: map[string]bool{}}
}

// device is a device by its directory, plugins/PLUGIN/HASH.
type device struct {
	plugin volume.Stager
	dir    string
}

func (d device) place() string { return filepath.Join(d.dir, "globalmount") }

func (d device) nameFile() string { return filepath.Join(d.dir, "device") }

func (d device) user(u User) string { return filepath.Join(d.dir, "users", string(u.UID), u.Name) }

func (s *Stages) parent(plugin volume.Stager) string { return filepath.Join(s.dir, plugin.Name()) }

// Enter stages the device of a volume unless it is staged, and returns its staging directory.
func (s *Stages) Enter(ctx context.Context, plugin volume.Stager, spec volume.Spec, u User) (string, error) {
	name := plugin.Device(spec)
	sum := sha256.Sum256([]byte(name))
	d := device{plugin, filepath.Join(s.parent(plugin), hex.EncodeToString(sum[:]))}
	op := s.ops.Start(ctx, operations.Task{
		Key: operations.Key(d.dir), Kind: "enter " + string(u.UID) + "/" + u.Name,
		Do: func(ctx context.Context, _ *operations.Operation) error { return s.enter(ctx, d, name, spec, u) },
	})
	if err := op.Wait(ctx); err != nil && !op.Ended() {
		op.Cancel() // the operation is for this volume only, and its mount was cancelled
		<-op.Done() // otherwise the operation could write the user's file after Leave has searched for it
	}
	if err := op.Err(); err != nil {
		return "", fmt.Errorf("stage the device %s: %w", name, err)
	}
	return d.place(), nil
}

func (s *Stages) enter(ctx context.Context, d device, name string, spec volume.Spec, u User) error {
	if err := os.MkdirAll(filepath.Dir(d.user(u)), 0o750); err != nil {
		return err
	}
	if err := atomicfile.WriteVolatile(d.nameFile(), []byte(name), 0o600); err != nil {
		return err
	}
	mark, err := os.OpenFile(d.user(u), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if err := mark.Close(); err != nil {
		return err
	}
	s.mu.Lock()
	ready := s.staged[d.dir]
	s.mu.Unlock()
	if ready {
		return nil
	}
	if err := d.plugin.Stage(ctx, volume.Staging{Device: name, Spec: spec, Dir: d.place()}); err != nil {
		return err
	}
	s.mark(d, true)
	return nil
}

func (s *Stages) mark(d device, staged bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if staged {
		s.staged[d.dir] = true
	} else {
		delete(s.staged, d.dir)
	}
}

// Leave removes an unmounted volume from the users of its device, and unstages the device if it has no other user.
// If u.Name is empty, it does so for all volumes of the pod.
func (s *Stages) Leave(ctx context.Context, plugin volume.Stager, u User) error {
	all, err := s.devices(plugin)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range all {
		users, err := d.users()
		if err != nil {
			errs = append(errs, err)
		}
		for _, one := range users {
			if one.UID == u.UID && (u.Name == "" || one.Name == u.Name) {
				errs = append(errs, s.leave(ctx, d, one))
			}
		}
	}
	return errors.Join(errs...)
}

// Sweep removes the users whose pods don't exist any more, and unstages the devices that have no other users. The
// function there reports whether a pod exists.
func (s *Stages) Sweep(ctx context.Context, plugin volume.Stager, there func(types.UID) bool) error {
	all, err := s.devices(plugin)
	if err != nil {
		return err
	}
	var errs []error
	for _, d := range all {
		users, err := d.users()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, u := range users {
			if !there(u.UID) {
				errs = append(errs, s.leave(ctx, d, u))
			}
		}
		if len(users) == 0 {
			errs = append(errs, s.leave(ctx, d, User{}))
		}
	}
	return errors.Join(errs...)
}

func (s *Stages) leave(ctx context.Context, d device, u User) error {
	op := s.ops.Start(ctx, operations.Task{
		Key: operations.Key(d.dir), Kind: "leave " + string(u.UID) + "/" + u.Name, Undoes: true,
		Do: func(ctx context.Context, _ *operations.Operation) error { return s.left(ctx, d, u) },
	})
	if err := op.Wait(ctx); err != nil {
		return fmt.Errorf("unstage the device at %s: %w", d.dir, err)
	}
	return nil
}

// left unstages the device if it has no other user, and then removes the user's file. If the agent crashes before
// that, it tries again after its restart.
func (s *Stages) left(ctx context.Context, d device, u User) error {
	users, err := d.users()
	if err != nil {
		return err
	}
	for _, other := range users {
		if other != u {
			return d.forget(u)
		}
	}
	name, err := os.ReadFile(d.nameFile())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	s.mark(d, false)
	if err == nil {
		if err := d.plugin.Unstage(ctx, volume.Staging{Device: string(name), Dir: d.place()}); err != nil {
			return err
		}
		if err := teardown.Remove(ctx, d.dir, filepath.Base(d.place())); err != nil {
			return err
		}
	}
	if err := d.forget(u); err != nil {
		return err
	}
	return teardown.Remove(ctx, s.parent(d.plugin), filepath.Base(d.dir))
}

// forget removes a user's file.
func (d device) forget(u User) error {
	if u == (User{}) {
		return nil
	}
	if err := os.Remove(d.user(u)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	_ = os.Remove(filepath.Dir(d.user(u))) // fails unless this was the pod's last user file for the device
	return nil
}

// devices lists the plugin's devices that have a directory.
func (s *Stages) devices(plugin volume.Stager) ([]device, error) {
	names, err := list(s.parent(plugin))
	var all []device
	for _, n := range names {
		if sum, err := hex.DecodeString(n); err == nil && len(sum) == sha256.Size { // others are the plugin's own
			all = append(all, device{plugin, filepath.Join(s.parent(plugin), n)})
		}
	}
	return all, err
}

func (d device) users() ([]User, error) {
	top := filepath.Join(d.dir, "users")
	uids, err := list(top)
	var users []User
	for _, uid := range uids {
		names, e := list(filepath.Join(top, uid))
		err = errors.Join(err, e)
		for _, n := range names {
			users = append(users, User{types.UID(uid), n})
		}
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
