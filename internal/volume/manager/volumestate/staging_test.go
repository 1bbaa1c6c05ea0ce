package volumestate_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
)

// disk is a plugin whose devices come to the node when they are let through.
type disk struct{ pass chan error }

func (disk) Name() string { return "test.example/disk" }

func (disk) Supports(volume.Spec) bool { return true }

func (disk) Mount(context.Context, volume.Request) (volume.Mounted, error) {
	return volume.Mounted{}, nil
}

func (disk) Device(volume.Spec) string { return "sda" }

func (d disk) Stage(context.Context, volume.Staging) error { return <-d.pass }

func (disk) Unstage(context.Context, volume.Staging) error { return nil }

// Whoever enters after it left has entered, whatever else is asked for while the device hangs.
func TestWhoEntersAgainIsItsUser(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, x, y := disk{make(chan error)}, volumestate.User{UID: "uid-x", Name: "data"}, volumestate.User{UID: "uid-y", Name: "data"}
		s := volumestate.NewStages(dir, operations.Config{})
		ended := make(chan error, 4)
		ask := func(do func() error) {
			go func() { ended <- do() }()
			synctest.Wait() // so that they come in this order
		}
		enter := func(u volumestate.User) func() error {
			return func() error {
				_, err := s.Enter(t.Context(), d, volume.Spec{}, u)
				return err
			}
		}
		ask(enter(x))
		d.pass <- errors.New("not yet") // it is a user from now on
		if err := <-ended; err == nil {
			t.Fatal("the device is said to be there")
		}
		ask(enter(y)) // which hangs
		ask(enter(x))
		ask(func() error { return s.Leave(t.Context(), d, x) })
		ask(enter(x))
		d.pass <- nil
		for range 4 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		for _, u := range []volumestate.User{x, y} {
			if marks, err := filepath.Glob(filepath.Join(dir, "test.example/disk/*/users", string(u.UID), u.Name)); err != nil || len(marks) != 1 {
				t.Errorf("%s isn't a user: %v, %v", u.UID, marks, err)
			}
		}
	})
}
