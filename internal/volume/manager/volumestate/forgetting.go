package volumestate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
)

// Refusal is the error for a volume or a device that must not be forgotten. Unknown says that there is none.
type Refusal struct {
	Unknown bool
	text    string
}

func (r *Refusal) Error() string { return r.text }

// Refuse returns a Refusal.
func Refuse(format string, args ...any) *Refusal { return &Refusal{text: fmt.Sprintf(format, args...)} }

// NotHeld returns the Refusal for a volume or a device that isn't there.
func NotHeld(what string) *Refusal {
	r := Refuse("no driver holds %s on this node: `deckhand volumes` lists those that are held", what)
	r.Unknown = true
	return r
}

// Held is a volume of a pod, or a staged device, that another program may hold.
type Held struct {
	// User is the volume; zero for a device.
	User
	// Device is the device's key; empty for a volume of a pod.
	Device string
	// Program is the name of the program, Handle the program's name of the volume.
	Program, Handle string
	// Mounted says that containers can use the volume of a pod, Wanted that its pod, or a pod that uses the device, is
	// desired.
	Mounted, Wanted bool
	// Waits says what its mount or its release waits for, or why it failed; it may be empty.
	Waits string
}

// Forget releases the device of a volume without calling the program that holds the device, if the volume is the
// device's only user and uses no other device. The volume must not be mounted any more. It returns the device's key, or
// an empty one.
func (s *Stages) Forget(ctx context.Context, plugin volume.Forgetter, u User) (key string, err error) {
	devices, err := s.devicesOf(plugin, u)
	if err != nil || len(devices) != 1 {
		return "", err
	}
	for r, d := range devices {
		forgot := "" // empty if the device isn't released, because other volumes use it
		if err := s.forget(ctx, r, "forget "+string(u.UID)+"/"+u.Name, func(ctx context.Context) error {
			users, err := r.users()
			if err != nil || len(users) != 1 || users[0] != u {
				return err
			}
			s.mark(r, false)
			forgot = d.Key
			return plugin.Forget(ctx, filepath.Join(s.root, d.Dir), true)
		}); err != nil {
			return "", err
		}
		key = forgot
	}
	return key, nil
}

// ForgetDevice releases the device with this key without calling the program that holds it, and removes its records.
// The function free returns an error for a pod that may use the device. The error is a *Refusal if there is no such
// device, or if a volume of a pod still uses it.
func (s *Stages) ForgetDevice(ctx context.Context, key string, free func(User) error) error {
	for _, plugin := range s.plugins {
		f, ok := plugin.(volume.Forgetter)
		if !ok {
			continue
		}
		r := s.recordOf(device{Plugin: f.Name(), Key: key})
		d, err := s.read(r)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		return s.forget(ctx, r, "forget", func(ctx context.Context) error {
			users, err := r.users()
			if err != nil {
				return err
			}
			for _, u := range users {
				if err := free(u); err != nil {
					return err
				}
				if _, err := os.Lstat(s.layout.Place(u.place(f)).Dir); !errors.Is(err, fs.ErrNotExist) {
					return Refuse("volume %s/%[2]s uses %[3]s: run `deckhand volumes forget %[1]s/%[2]s` first", u.UID,
						u.Name, key)
				}
			}
			s.mark(r, false)
			dir := filepath.Join(s.root, d.Dir)
			if err := f.Forget(ctx, dir, true); err != nil {
				return err
			}
			if err := teardown.Remove(ctx, filepath.Dir(dir), filepath.Base(dir)); err != nil {
				return err
			}
			return s.remove(ctx, r)
		})
	}
	return NotHeld(key)
}

// forget runs the function do as an operation on a device. It first cancels the operations that wait for the program
// that holds the device.
func (s *Stages) forget(ctx context.Context, r record, kind string, do func(context.Context) error) error {
	for _, op := range s.ops.On(operations.Key(r)) {
		if op.Undoes() {
			op.Cancel()
		}
	}
	return s.ops.Start(ctx, operations.Task{Key: operations.Key(r), Kind: kind, Undoes: true,
		Do: func(ctx context.Context, _ *operations.Operation) error { return do(ctx) }}).Wait(ctx)
}

// Held lists the devices that other programs may hold. wanted reports whether a user's pod is desired.
func (s *Stages) Held(wanted func(User) bool) ([]Held, error) {
	all, err := s.records()
	var list []Held
	for _, r := range all {
		d, e := s.read(r)
		if e != nil {
			err = errors.Join(err, e)
			continue
		}
		f, ok := s.plugin(d).(volume.Forgetter)
		if !ok {
			continue
		}
		n, e := f.Note(filepath.Join(s.root, d.Dir))
		if errors.Is(e, fs.ErrNotExist) {
			continue // the program doesn't stage volumes
		}
		h := Held{Device: d.Key, Program: n.Program, Handle: n.Handle}
		s.mu.Lock()
		failed := s.failed[r]
		s.mu.Unlock()
		if e := cmp.Or(e, failed); e != nil {
			h.Waits = e.Error()
		}
		users, e := r.users()
		err = errors.Join(err, e)
		for _, u := range users {
			h.Wanted = h.Wanted || wanted(u)
		}
		if doing := Doings(s.ops.On(operations.Key(r))); doing != "" {
			h.Waits = doing
		}
		list = append(list, h)
	}
	return list, err
}

// Doings describes the current step of the operations on one key; it is empty if none of them has described its step.
func Doings(ops []*operations.Operation) (doing string) {
	for _, op := range ops {
		if working, text := op.State(); working {
			doing = text
		}
	}
	return doing
}
