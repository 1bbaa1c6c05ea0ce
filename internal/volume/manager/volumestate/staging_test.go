package volumestate_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/operations"
)

// disk is a plugin whose devices come to the node when they are let through, if it has a pass.
type disk struct {
	name string
	root string
	pass chan error
	// note says that the device has a note.
	note     bool
	unstaged *[]volume.Staging
	// used gets Staging.Used of each call of Stage.
	used *[]bool
}

func (d disk) Name() string { return d.name }

func (disk) Supports(volume.Spec) bool { return true }

func (disk) Mount(context.Context, volume.Request) (volume.Mounted, error) {
	return volume.Mounted{}, nil
}

// Device has a key that isn't a name of a file.
func (d disk) Device(volume.Spec) (key, dir string) {
	return "../../sda", d.place()
}

func (d disk) place() string { return filepath.Join(d.root, "plugins", d.name, "sda") }

func (d disk) Stage(_ context.Context, g volume.Staging) error {
	if d.used != nil {
		*d.used = append(*d.used, g.Used)
	}
	if d.pass != nil {
		return <-d.pass
	}
	return os.MkdirAll(filepath.Join(g.Dir, "globalmount"), 0o700)
}

func (d disk) Unstage(_ context.Context, g volume.Staging) error {
	*d.unstaged = append(*d.unstaged, g)
	return nil
}

func (d disk) Note(dir string) (volume.Note, error) {
	switch key, err := os.ReadFile(filepath.Join(dir, "note")); {
	case dir != d.place():
		return volume.Note{Device: string(key)}, err
	case !d.note:
		return volume.Note{}, fs.ErrNotExist
	}
	return volume.Note{Device: "../../sda"}, nil
}

// Noted finds the device by its directory.
func (d disk) Noted() []string {
	if _, err := os.Stat(d.place()); err != nil || !d.note {
		return nil
	}
	return []string{d.place()}
}

// files lists the paths of the files below a directory, and of the empty directories.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if inside, _ := os.ReadDir(path); len(inside) == 0 {
			all = append(all, strings.TrimPrefix(path, dir+"/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTheNextAgentUnstagesByTheNotes: two plugins have devices of one key; the next agent knows both, and who uses them.
func TestTheNextAgentUnstagesByTheNotes(t *testing.T) {
	root := t.TempDir()
	var unstaged []volume.Staging
	noted, bare := disk{name: "test.example/noted", root: root, note: true, unstaged: &unstaged}, disk{name: "test.example/bare", root: root, unstaged: &unstaged}
	both := []volume.Stager{noted, bare}
	x, y := volume.Request{}, volumestate.User{UID: "uid-y", Name: "data"}
	first := volumestate.NewStages(root, both, operations.Config{})
	for _, d := range []disk{noted, bare} {
		if err := first.Enter(t.Context(), d, x, y); err != nil {
			t.Fatal(err)
		}
	}
	all := files(t, root)
	if len(all) != 6 || all[0] != "plugins/test.example/bare/sda/globalmount" || all[1] != "plugins/test.example/noted/sda/globalmount" {
		t.Errorf("files: %q", all) // nothing of ours is with the plugins
	}
	for _, path := range all[2:] {
		if ok, _ := filepath.Match("staged/????????????????????????????????????????????????????????????????/device", path); !ok && !strings.HasSuffix(path, "/users/uid-y/data") {
			t.Errorf("%s", path)
		}
	}

	second := volumestate.NewStages(root, both, operations.Config{})
	if err := second.Sweep(t.Context(), func(types.UID) bool { return true }); err != nil || len(unstaged) > 0 {
		t.Errorf("%v; unstaged %v", err, unstaged)
	}
	if err := second.Leave(t.Context(), bare.name, y, nil); err != nil {
		t.Error(err)
	}
	if err := second.Sweep(t.Context(), func(types.UID) bool { return false }); err != nil {
		t.Error(err)
	}
	for i := range unstaged {
		unstaged[i].Say = nil // functions can't be compared
	}
	want := []volume.Staging{{Device: "../../sda", Dir: bare.place()}, {Device: "../../sda", Dir: noted.place()}}
	if !reflect.DeepEqual(unstaged, want) {
		t.Errorf("unstaged %+v", unstaged)
	}
	if left := files(t, root); !slices.Equal(left, []string{"plugins/test.example", "staged"}) && !slices.Equal(left, []string{"plugins/test.example/bare", "plugins/test.example/noted", "staged"}) {
		t.Errorf("left: %q", left)
	}
}

// TestBadRecords: a device whose record can't be read, or names a place that isn't a plugin's, is left alone.
func TestBadRecords(t *testing.T) {
	for name, spoil := range map[string]func(text []byte) []byte{
		"of a newer version": func([]byte) []byte { return []byte(`{"version": 2}`) },
		"cut":                func(text []byte) []byte { return text[:len(text)/2] },
		"large":              func([]byte) []byte { return make([]byte, 1<<20) },
		"of another device":  func([]byte) []byte { return sealed(t, "test.example/disk", "sdb", "plugins/test.example/disk/sda") },
		"of all plugins":     func([]byte) []byte { return sealed(t, "test.example/disk", "../../sda", "plugins/x/..") },
		"of the root":        func([]byte) []byte { return sealed(t, "test.example/disk", "../../sda", "plugins/../precious") },
		"of a foreign place": func([]byte) []byte { return sealed(t, "test.example/disk", "../../sda", "precious") },
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			var unstaged []volume.Staging
			d, u := disk{name: "test.example/disk", root: root, unstaged: &unstaged}, volumestate.User{UID: "uid-y", Name: "data"}
			s := volumestate.NewStages(root, []volume.Stager{d}, operations.Config{})
			if err := s.Enter(t.Context(), d, volume.Request{}, u); err != nil {
				t.Fatal(err)
			}
			found, _ := filepath.Glob(filepath.Join(root, "staged/*/device"))
			text, err := os.ReadFile(found[0])
			if err := errors.Join(err, os.Mkdir(filepath.Join(root, "precious"), 0o700), os.WriteFile(found[0], spoil(text), 0o600)); err != nil {
				t.Fatal(err)
			}
			before := files(t, root)
			for _, err := range []error{s.Leave(t.Context(), d.name, u, nil), s.Sweep(t.Context(), func(types.UID) bool { return false })} {
				if err == nil || !strings.Contains(err.Error(), found[0]) {
					t.Errorf("got %v", err)
				}
			}
			if after := files(t, root); !slices.Equal(before, after) || len(unstaged) > 0 {
				t.Errorf("left: %q, unstaged %v", after, unstaged)
			}
			// Who mounts the device again makes its record anew, unless it is of a newer version.
			err = s.Enter(t.Context(), d, volume.Request{}, u)
			if err = errors.Join(err, s.Leave(t.Context(), d.name, u, nil)); (err != nil) != (name == "of a newer version") {
				t.Error(err)
			}
		})
	}
}

func sealed(t *testing.T, plugin, key, dir string) []byte {
	t.Helper()
	text, err := checkpoint.Seal(1, map[string]string{"plugin": plugin, "key": key, "dir": dir})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestADeviceIsAtOnePlace: a plugin that names a foreign place, or another one for a device that is staged, is refused.
func TestADeviceIsAtOnePlace(t *testing.T) {
	root := t.TempDir()
	u := volumestate.User{UID: "uid-y", Name: "data"}
	d, foreign := disk{name: "test.example/disk", root: root}, disk{name: "test.example/disk", root: t.TempDir()}
	moved := elsewhere{d}
	s := volumestate.NewStages(root, []volume.Stager{d}, operations.Config{})
	if err := s.Enter(t.Context(), foreign, volume.Request{}, u); err == nil || !strings.Contains(err.Error(), "isn't below plugins/") {
		t.Errorf("got %v", err)
	}
	if err := s.Enter(t.Context(), d, volume.Request{}, u); err != nil {
		t.Error(err)
	}
	if err := s.Enter(t.Context(), moved, volume.Request{}, u); err == nil || !strings.Contains(err.Error(), "still staged at plugins/test.example/disk/sda") {
		t.Errorf("got %v", err)
	}
}

// elsewhere has another place for the devices of disk.
type elsewhere struct{ disk }

func (e elsewhere) Device(s volume.Spec) (key, dir string) {
	key, dir = e.disk.Device(s)
	return key, dir + "-moved"
}

// TestDevicesOfAnUnknownPluginStay, and hold up no pod.
func TestDevicesOfAnUnknownPluginStay(t *testing.T) {
	root := t.TempDir()
	u := volumestate.User{UID: "uid-y", Name: "data"}
	d := disk{name: "test.example/disk", root: root}
	if err := volumestate.NewStages(root, []volume.Stager{d}, operations.Config{}).Enter(t.Context(), d, volume.Request{}, u); err != nil {
		t.Fatal(err)
	}
	before := files(t, root)
	s := volumestate.NewStages(root, nil, operations.Config{})
	if err := s.Leave(t.Context(), "", volumestate.User{UID: u.UID}, nil); err != nil {
		t.Error(err)
	}
	if err := s.Sweep(t.Context(), func(types.UID) bool { return false }); err == nil || !strings.Contains(err.Error(), "no plugin test.example/disk") {
		t.Errorf("got %v", err)
	}
	if after := files(t, root); !slices.Equal(before, after) {
		t.Errorf("left: %q", after)
	}
}

// A device that a kubelet has staged is unstaged when the last of its pods ends, also if another ends first that this
// agent has prepared.
func TestDevicesOfAKubelet(t *testing.T) {
	root := t.TempDir()
	var unstaged []volume.Staging
	d := disk{name: "test.example/disk", root: root, note: true, unstaged: &unstaged}
	layout := volumestate.NewLayout(filepath.Join(root, "pods"))
	users := []volumestate.User{{UID: "uid-a", Name: "data"}, {UID: "uid-b", Name: "data"}}
	if err := os.MkdirAll(filepath.Join(d.place(), "globalmount"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, u := range append(users, volumestate.User{UID: "uid-c", Name: "other"}) {
		at := layout.Place(volumestate.Place{UID: u.UID, Plugin: "test.example~disk", Name: u.Name})
		key := "../../sda"
		if u.Name == "other" {
			key = "sdb"
		}
		if err := errors.Join(os.MkdirAll(at.Dir, 0o700), os.WriteFile(filepath.Join(at.Dir, "note"), []byte(key), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s := volumestate.NewStages(root, []volume.Stager{d}, operations.Config{})
	for range 2 {
		if err := s.Adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Sweep(t.Context(), func(types.UID) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if err := s.Enter(t.Context(), d, volume.Request{}, users[0]); err != nil {
		t.Fatal(err)
	}
	for i, u := range users {
		if len(unstaged) > 0 {
			t.Errorf("unstaged before its last pod ended")
		}
		if err := s.Leave(t.Context(), d.name, u, nil); err != nil {
			t.Fatal(i, err)
		}
	}
	if len(unstaged) != 1 || unstaged[0].Dir != d.place() {
		t.Errorf("unstaged %+v", unstaged)
	}
}

// A volume that is removed while Adopt records its device doesn't become a user that nobody removes. A user that has
// entered before stays: its volume has no note yet.
func TestVolumeThatIsRemovedDuringAdopt(t *testing.T) {
	for name, entered := range map[string]bool{"removed": false, "entered again": true} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			var unstaged []volume.Staging
			d := passing{disk{name: "test.example/disk", root: root, note: true, unstaged: &unstaged}}
			u := volumestate.User{UID: "uid-a", Name: "data"}
			at := volumestate.NewLayout(filepath.Join(root, "pods")).Place(volumestate.Place{UID: u.UID, Plugin: "test.example~disk", Name: u.Name})
			s := volumestate.NewStages(root, []volume.Stager{d}, operations.Config{})
			if entered {
				if err := s.Enter(t.Context(), d, volume.Request{}, u); err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(os.MkdirAll(d.place(), 0o700), os.MkdirAll(at.Dir, 0o700),
				os.WriteFile(filepath.Join(at.Dir, "note"), []byte("../../sda"), 0o600)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.Adopt(t.Context()), s.Sweep(t.Context(), func(types.UID) bool { return true })); err != nil {
				t.Fatal(err)
			}
			if (len(unstaged) == 0) != entered {
				t.Errorf("unstaged %+v", unstaged)
			}
		})
	}
}

// passing is a disk with volumes that are removed once their notes have been read.
type passing struct{ disk }

func (p passing) Note(dir string) (volume.Note, error) {
	n, err := p.disk.Note(dir)
	if dir != p.place() {
		_ = os.Remove(filepath.Join(dir, "note"))
	}
	return n, err
}

// A device is in use by the volumes that are on it, not by those that wait for it.
func TestUsedDevice(t *testing.T) {
	root := t.TempDir()
	var used []bool
	d := disk{name: "test.example/disk", root: root, unstaged: new([]volume.Staging), used: &used}
	s := volumestate.NewStages(root, []volume.Stager{d}, operations.Config{})
	enter := func(uid types.UID) {
		t.Helper()
		if err := s.Enter(t.Context(), d, volume.Request{}, volumestate.User{UID: uid, Name: "data"}); err != nil {
			t.Fatal(err)
		}
	}
	enter("uid-a")
	enter("uid-b") // uid-a has no volume yet
	at := volumestate.NewLayout(filepath.Join(root, "pods")).Place(volumestate.Place{UID: "uid-a", Plugin: "test.example~disk", Name: "data"})
	if err := errors.Join(os.MkdirAll(at.Dir, 0o700), os.WriteFile(filepath.Join(at.Dir, "note"), []byte("../../sda"), 0o600)); err != nil {
		t.Fatal(err)
	}
	enter("uid-b")
	enter("uid-a") // again: by itself, it doesn't count
	if err := os.WriteFile(filepath.Join(at.Dir, "note"), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	enter("uid-b")
	if want := []bool{false, false, true, false, false}; !slices.Equal(used, want) {
		t.Errorf("used: %v, want %v", used, want)
	}
}

// A volume of a kubelet whose note can't be read may use any device: these stay until it is gone, and no longer. What it
// uses isn't known.
func TestUnreadableUserOfADevice(t *testing.T) {
	root := t.TempDir()
	var unstaged []volume.Staging
	d := disk{name: "test.example/disk", root: root, note: true, unstaged: &unstaged}
	layout := volumestate.NewLayout(filepath.Join(root, "pods"))
	at := layout.Place(volumestate.Place{UID: "uid-a", Plugin: "test.example~disk", Name: "data"})
	if err := errors.Join(os.MkdirAll(filepath.Join(d.place(), "globalmount"), 0o700), os.MkdirAll(filepath.Join(at.Dir, "note"), 0o700)); err != nil {
		t.Fatal(err)
	}
	s := volumestate.NewStages(root, []volume.Stager{d}, operations.Config{})
	if err := s.Adopt(t.Context()); err == nil || !strings.Contains(err.Error(), "volume data of pod uid-a") {
		t.Errorf("adopted: %v", err)
	}
	if err := s.Sweep(t.Context(), func(types.UID) bool { return true }); err != nil || len(unstaged) > 0 {
		t.Errorf("unstaged %+v: %v", unstaged, err)
	}
	torn, other := volumestate.User{UID: "uid-a", Name: "data"}, volumestate.User{UID: "uid-b", Name: "data"}
	if key := s.Device(d, torn); key != "" {
		t.Errorf("its device is %q, which is a guess", key)
	}
	if err := s.Enter(t.Context(), d, volume.Request{}, other); err != nil {
		t.Fatal(err)
	}
	if key := s.Device(d, other); key != "../../sda" {
		t.Errorf("the device of the other one is %q", key)
	}
	if err := errors.Join(s.Adopt(t.Context()), s.Leave(t.Context(), d.name, other, nil)); err == nil || len(unstaged) > 0 {
		t.Errorf("unstaged %+v: %v", unstaged, err)
	}
	if err := s.Leave(t.Context(), d.name, torn, nil); err != nil || len(unstaged) != 1 {
		t.Errorf("unstaged %+v: %v", unstaged, err)
	}
}

// A volume whose note can't be read isn't a user of a device that was recorded without it, also after a restart.
func TestUnreadableNoteAndRecordedDevice(t *testing.T) {
	root := t.TempDir()
	var unstaged []volume.Staging
	d := disk{name: "test.example/disk", root: root, note: true, unstaged: &unstaged}
	u := volumestate.User{UID: "uid-b", Name: "data"}
	earlier := volumestate.NewStages(root, []volume.Stager{d}, operations.Config{})
	torn := volumestate.NewLayout(filepath.Join(root, "pods")).Place(
		volumestate.Place{UID: "uid-a", Plugin: "test.example~disk", Name: "data"})
	if err := errors.Join(earlier.Enter(t.Context(), d, volume.Request{}, u), os.MkdirAll(d.place(), 0o700),
		os.MkdirAll(filepath.Join(torn.Dir, "note"), 0o700)); err != nil {
		t.Fatal(err)
	}
	s := volumestate.NewStages(root, []volume.Stager{d}, operations.Config{})
	if err := s.Adopt(t.Context()); err == nil || !strings.Contains(err.Error(), "volume data of pod uid-a") {
		t.Errorf("adopted: %v", err)
	}
	if err := s.Leave(t.Context(), d.name, u, nil); err != nil || len(unstaged) != 1 {
		t.Errorf("unstaged %+v: %v", unstaged, err)
	}
}

// Whoever enters after it left has entered, whatever else is asked for while the device hangs.
func TestWhoEntersAgainIsItsUser(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		d, x, y := disk{name: "test.example/disk", root: dir, note: true, pass: make(chan error)}, volumestate.User{UID: "uid-x", Name: "data"}, volumestate.User{UID: "uid-y", Name: "data"}
		s := volumestate.NewStages(dir, []volume.Stager{d}, operations.Config{})
		ended := make(chan error, 4)
		ask := func(do func() error) {
			go func() { ended <- do() }()
			synctest.Wait() // so that they come in this order
		}
		enter := func(u volumestate.User) func() error {
			return func() error {
				err := s.Enter(t.Context(), d, volume.Request{}, u)
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
		ask(func() error { return s.Leave(t.Context(), d.name, x, nil) })
		ask(enter(x))
		d.pass <- nil
		for range 4 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		for _, u := range []volumestate.User{x, y} {
			if marks, err := filepath.Glob(filepath.Join(dir, "staged/*/users", string(u.UID), u.Name)); err != nil || len(marks) != 1 {
				t.Errorf("%s isn't a user: %v, %v", u.UID, marks, err)
			}
		}
	})
}
