package manager_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
)

// driven is a plugin of shares that a driver holds, which is away if its calls fail, or hangs.
type driven struct {
	*share
	// hangs says that the driver doesn't answer before the context of a call ends.
	hangs chan struct{}
}

var _ volume.Forgetter = driven{}

func (d driven) Note(dir string) (volume.Note, error) {
	if _, err := os.Lstat(dir); err != nil {
		return volume.Note{}, err
	}
	n, _ := d.share.Note(dir)
	n.Program, n.Handle = "driver", filepath.Base(dir)
	return n, nil
}

func (d driven) Unmount(ctx context.Context, at volume.Place, say volume.Say) error {
	if d.hangs != nil {
		say.Waits("the driver doesn't answer")
		d.hangs <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	return d.share.Unmount(ctx, at, say)
}

func (d driven) Unstage(ctx context.Context, g volume.Staging) error {
	if _, err := d.share.Note(g.Dir); err != nil {
		return nil
	}
	return d.share.Unstage(ctx, g)
}

func (d driven) Forget(_ context.Context, dir string, staged bool) error {
	if staged {
		return errors.Join(unix.Unmount(globalmount(dir), unix.UMOUNT_NOFOLLOW), os.Remove(filepath.Join(dir, "note")))
	}
	return unix.Unmount(dir, unix.UMOUNT_NOFOLLOW)
}

func (w *world) startDriven(d driven) (*manager.Manager, func()) {
	c := w.config()
	c.Plugins = append([]volume.Plugin{d}, c.Plugins...)
	return w.start(c)
}

func (w *world) unwant(uid types.UID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pods, uid)
}

// refused fails unless the error is a refusal with these words.
func refused(t *testing.T, err error, unknown bool, words string) {
	t.Helper()
	var refusal *volumestate.Refusal
	if !errors.As(err, &refusal) || refusal.Unknown != unknown || !strings.Contains(err.Error(), words) {
		t.Errorf("got %v, want a refusal with %q", err, words)
	}
}

func heldIDs(t *testing.T, m *manager.Manager) (ids []string) {
	t.Helper()
	list, err := m.Held()
	must(t, err)
	for _, h := range list {
		id := h.Device
		if id == "" {
			id = string(h.UID) + "/" + h.Name
		}
		if h.Wanted {
			id += " wanted"
		}
		ids = append(ids, id)
	}
	return ids
}

// A volume whose driver doesn't come back is forgotten, and its device with the last volume. Other volumes stay.
func TestForgetVolume(t *testing.T) {
	w := newWorld(t)
	d := driven{share: newShare(w)}
	m, stop := w.startDriven(d)
	a := w.want(namedPod("a", "uid-a", nfs("x", "one"), nfs("y", "two"), emptyDir("e", "")))
	b := w.want(namedPod("b", "uid-b", nfs("x", "two")))
	must(t, m.Prepare(t.Context(), a, w))
	must(t, m.Prepare(t.Context(), b, w))
	for _, call := range []string{"unmount x", "unmount y", "unstage one", "unstage two"} {
		d.setFail(call, errors.New("the driver is away"))
	}
	_, err := m.Forget(t.Context(), a.UID, "x")
	refused(t, err, false, "pod default/a (uid-a) is wanted")
	a.DeletionTimestamp = &metav1.Time{}
	w.setRunning(a.UID, true)
	_, err = m.Forget(t.Context(), a.UID, "x")
	refused(t, err, false, "may still run")
	w.setRunning(a.UID, false)
	_, err = m.Forget(t.Context(), a.UID, "x")
	refused(t, err, false, "is still being stopped")
	w.unwant(a.UID)
	if err := m.Clean(t.Context(), a.UID); err == nil || !strings.Contains(err.Error(), "the driver is away") {
		t.Errorf("cleaned: %v", err)
	}
	for _, name := range []string{"e", "emptyless"} { // the emptyDir is removed already
		_, err = m.Forget(t.Context(), a.UID, name)
		refused(t, err, true, "no driver holds uid-a/"+name)
	}
	_, err = m.Forget(t.Context(), "uid-none", "x")
	refused(t, err, true, "no driver holds")
	for _, bad := range [][2]string{{"../uid-a", "x"}, {"uid-a", "../x"}, {"..", "x"}, {"uid-a", ".."}, {"", "x"}, {"uid-a", ""},
		{"uid-a", strings.Repeat("x", 300)}, {"uid-a", "x/y"}} {
		_, err := m.Forget(t.Context(), types.UID(bad[0]), bad[1])
		refused(t, err, false, "can't be one")
	}
	list, err := m.Held()
	must(t, err)
	if h := list[0]; h.UID != a.UID || h.Name != "x" || h.Program != "driver" || h.Handle != "x" || h.Wanted || h.Mounted ||
		h.Waits != "the driver is away" {
		t.Errorf("held: %+v", h)
	}
	refused(t, m.ForgetDevice(t.Context(), "one"), false, "run `deckhand volumes forget uid-a/x` first")
	refused(t, m.ForgetDevice(t.Context(), "../one"), true, "no driver holds ../one")

	device, err := m.Forget(t.Context(), a.UID, "x")
	if err != nil || device != "one" {
		t.Errorf("forgot the device %q: %v", device, err)
	}
	device, err = m.Forget(t.Context(), a.UID, "y")
	if err != nil || device != "" {
		t.Errorf("forgot the device %q, which another pod uses: %v", device, err)
	}
	must(t, m.Clean(t.Context(), a.UID))
	if got := heldIDs(t, m); !slices.Equal(got, []string{"uid-b/x wanted", "two wanted"}) || len(mountTable(t, w.root)) != 2 {
		t.Errorf("held: %q, mounted: %v", got, mountTable(t, w.root))
	}

	// The volume of the other pod is released, but its device isn't: it is forgotten by itself, by another agent.
	refused(t, m.ForgetDevice(t.Context(), "two"), false, "is wanted")
	d.setFail("unmount x", nil)
	w.unwant(b.UID)
	must(t, m.Clean(t.Context(), b.UID))
	stop()
	m, _ = w.startDriven(d)
	must(t, m.ForgetDevice(t.Context(), "two"))
	must(t, m.Clean(t.Context(), b.UID))
	if got := heldIDs(t, m); len(got) > 0 || len(d.devices()) > 0 {
		t.Errorf("left: %q, %q", got, d.devices())
	}
	w.clean()
}

func (d driven) devices() []string {
	entries, err := os.ReadDir(filepath.Join(d.root, "plugins", "kubernetes.io", "share"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		panic(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Volumes that no driver holds aren't forgotten.
func TestForgetOtherVolume(t *testing.T) {
	w := newWorld(t)
	m, _ := w.startDriven(driven{share: newShare(w)})
	dir := filepath.Join(w.root, "pods/uid-a/volumes/kubernetes.io~empty-dir/e")
	must(t, os.MkdirAll(dir, 0o750))
	_, err := m.Forget(t.Context(), "uid-a", "e")
	refused(t, err, false, "held by no driver (kubernetes.io~empty-dir)")
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	must(t, m.Clean(t.Context(), "uid-a"))
}

// A call that hangs doesn't hold up that its volume is forgotten.
func TestForgetVolumeOfHungDriver(t *testing.T) {
	w := newWorld(t)
	d := driven{share: newShare(w), hangs: make(chan struct{}, 10)}
	m, _ := w.startDriven(d)
	p := w.want(namedPod("a", "uid-a", nfs("x", "one")))
	must(t, m.Prepare(t.Context(), p, w))
	w.unwant(p.UID)
	cleaned := make(chan error, 1)
	go func() { cleaned <- m.Clean(t.Context(), p.UID) }()
	<-d.hangs
	if list, err := m.Held(); err != nil || len(list) != 2 || list[0].Waits != "the driver doesn't answer" {
		t.Errorf("held: %+v, %v", list, err)
	}
	begun := time.Now()
	if _, err := m.Forget(t.Context(), p.UID, "x"); err != nil || time.Since(begun) > time.Minute {
		t.Errorf("after %s: %v", time.Since(begun), err)
	}
	<-cleaned // its result is that of the cancelled call, or of a later try
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// A PersistentVolume and a pod's own volume of one plugin and one name aren't mixed.
func TestApart(t *testing.T) {
	w := newWorld(t)
	d := driven{share: newShare(w)}
	of := func(name, dir string, plugin volume.Plugin, persistent bool) *volumestate.Wanted {
		s := volume.Spec{Volume: &v1.Volume{Name: name}}
		if persistent {
			s.Claim, s.Persistent = &v1.PersistentVolumeClaim{}, &v1.PersistentVolume{}
		}
		return &volumestate.Wanted{Spec: s, Plugin: plugin, Place: volumestate.Place{UID: "u", Plugin: plugin.Name(), Name: dir}}
	}
	own, claim, again := of("data", "data", d, false), of("db", "data", d, true), of("db2", "data", d, true)
	path := d.stand
	for name, c := range map[string]struct {
		wants, earlier []*volumestate.Wanted
		apart          int
	}{
		"one name":                  {[]*volumestate.Wanted{own, claim}, nil, 1},
		"planned before":            {[]*volumestate.Wanted{claim}, []*volumestate.Wanted{own}, 0},
		"planned before, reversed":  {[]*volumestate.Wanted{own}, []*volumestate.Wanted{claim}, 0},
		"itself":                    {[]*volumestate.Wanted{own}, []*volumestate.Wanted{own}, 1},
		"one claim twice":           {[]*volumestate.Wanted{claim, again}, nil, 2},
		"other names":               {[]*volumestate.Wanted{own, of("db", "pv", d, true)}, nil, 2},
		"a plugin that has no note": {[]*volumestate.Wanted{of("a", "a", path, false), of("b", "a", path, true)}, nil, 2},
	} {
		apart, problems := volumestate.Apart(c.wants, c.earlier)
		if len(apart) != c.apart || len(problems) != len(c.wants)-c.apart {
			t.Errorf("%s: %d volumes, problems %v", name, len(apart), problems)
		}
		for _, p := range problems {
			if p.Permanent() || !strings.Contains(p.String(), `both called "data"`) {
				t.Errorf("%s: %s", name, p)
			}
		}
	}
}
