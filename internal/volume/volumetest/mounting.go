package volumetest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
)

// supports checks that the plugin supports its own kind of volume and no other kind.
func (c Case) supports(t *testing.T) {
	own := c.Spec(t.TempDir())
	if !c.Plugin.Supports(own) {
		t.Errorf("it doesn't support its own volume, of the kind %q", own.Kind())
	}
	for _, s := range everyKind() {
		if s.Kind() != own.Kind() && c.Plugin.Supports(s) {
			t.Errorf("it supports the kind %s, too (PersistentVolume: %v)", s.Kind(), s.Persistent != nil)
		}
	}
}

// everyKind returns one volume of each kind in the API, for pods and for PersistentVolumes.
func everyKind() []volume.Spec {
	var specs []volume.Spec
	for i := range reflect.TypeFor[v1.VolumeSource]().NumField() {
		v := &v1.Volume{Name: "volume"}
		set(reflect.ValueOf(&v.VolumeSource).Elem().Field(i))
		specs = append(specs, volume.Spec{Volume: v})
	}
	for i := range reflect.TypeFor[v1.PersistentVolumeSource]().NumField() {
		pv := &v1.PersistentVolume{}
		pv.Name = "pv"
		set(reflect.ValueOf(&pv.Spec.PersistentVolumeSource).Elem().Field(i))
		v := &v1.Volume{Name: "volume",
			VolumeSource: v1.VolumeSource{
				PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}}
		specs = append(specs, volume.Spec{Volume: v, Claim: &v1.PersistentVolumeClaim{}, Persistent: pv})
	}
	return specs
}

func set(pointer reflect.Value) { pointer.Set(reflect.New(pointer.Type().Elem())) }

func (c Case) ready(t *testing.T) {
	r := newRig(t, c)
	m := r.mount(t)
	switch {
	case m.Image != nil && m.Path != "":
		t.Errorf("an image with a path: %s", m.Path)
	case m.Image == nil:
		if _, err := os.Stat(m.Path); err != nil {
			t.Errorf("the path that containers get: %v", err)
		}
	}
	if !c.Elsewhere && m.Path != r.request.Dir {
		t.Errorf("the path is %s, want the volume's directory", m.Path)
	}
	r.holds(t, m, c.Want)
}

// again checks that another Mount changes nothing of a volume.
func (c Case) again(t *testing.T) {
	r := newRig(t, c)
	first := r.mount(t)
	want := r.write(t, first)
	if c.Writable {
		// A container may remove the permissions of other users.
		if err := unix.Chmod(first.Path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	before := state(t, r.root)
	for _, r.request.InUse = range []bool{false, true} {
		if m := r.mount(t); !reflect.DeepEqual(m, first) {
			t.Errorf("it came to %+v at first, and now to %+v", first, m)
		}
		unchanged(t, r.root, before)
		r.holds(t, first, want)
	}
}

func (c Case) group(t *testing.T) {
	r := newRig(t, c)
	r.withGroup()
	m := r.mount(t)
	r.holds(t, m, c.Want)
	if c.IgnoresGroup {
		if m.Ownership {
			t.Error("the manager is to change owners that aren't the pod's")
		}
		return
	}
	var st unix.Stat_t
	if err := unix.Stat(m.Path, &st); err != nil {
		t.Fatal(err)
	}
	if m.Ownership == (st.Gid == group) {
		t.Errorf("the volume's group is %d, want %d; left to the manager: %v", st.Gid, group, m.Ownership)
	}
}

// reboot checks that the volume is mounted again after a reboot, which removes mounts but not files on disk.
func (c Case) reboot(t *testing.T) {
	r := newRig(t, c)
	m := r.mount(t)
	want := r.write(t, m)
	if c.InMemory {
		want = c.Want
	}
	for range 2 {
		unmountAll(t, r.root)
		r.holds(t, r.mount(t), want)
	}
	r.gone(t)
}

func (c Case) canceled(t *testing.T) {
	r := newRig(t, c)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Plugin.Mount(ctx, r.request); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	r.holds(t, r.mount(t), c.Want)
	r.gone(t)
}

func (c Case) teardown(t *testing.T) {
	r := newRig(t, c)
	r.gone(t) // one that was never made
	m := r.mount(t)
	want := r.write(t, m)
	r.gone(t)
	if !c.Outlives {
		want = c.Want
	}
	r.holds(t, r.mount(t), want) // the removed volume doesn't prevent another one
	r.gone(t)
}

// parallel mounts the volumes of several pods concurrently, and takes some of them down.
func (c Case) parallel(t *testing.T) {
	dir := t.TempDir()
	if err := c.prepare(dir); err != nil {
		t.Fatal(err)
	}
	rigs := make([]*rig, 8)
	mounted := make([]volume.Mounted, len(rigs))
	errs := make([]error, len(rigs))
	var wg sync.WaitGroup
	for i := range rigs {
		rigs[i] = c.rig(dir, fmt.Sprint("uid-", i))
		wg.Go(func() { mounted[i], errs[i] = rigs[i].Plugin.Mount(t.Context(), rigs[i].request) })
	}
	t.Cleanup(func() { unmountAll(t, rigs[0].root) })
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	half := len(rigs) / 2
	before := make([][]string, len(rigs))
	for i, r := range rigs[half:] {
		if !c.Outlives { // volumes that outlive their pods are the same for all pods
			r.write(t, mounted[half+i])
		}
		if !c.Elsewhere {
			before[half+i] = state(t, r.podDir())
		}
	}
	for i, r := range rigs[:half] {
		wg.Go(func() { errs[i] = r.takeDown(t.Context()) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Error(err)
	}
	for i, r := range rigs[half:] {
		if !c.Elsewhere {
			unchanged(t, r.podDir(), before[half+i])
		}
		if err := r.takeDown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if left := mounts(t, rigs[0].root); len(left) > 0 {
		t.Errorf("still mounted: %q", left)
	}
}

// halfMade checks that Mount completes a volume of which only an empty directory exists.
func (c Case) halfMade(t *testing.T) {
	r := newRig(t, c)
	if err := os.MkdirAll(r.request.Dir, 0o750); err != nil {
		t.Fatal(err)
	}
	r.holds(t, r.mount(t), c.Want)
	r.gone(t)
}

// link checks that Mount changes nothing outside of the pod's directory if there is a symbolic link at the place of the
// volume or of the plugin's data about it.
func (c Case) link(t *testing.T) {
	for _, where := range []string{"dir", "meta"} {
		t.Run(where, func(t *testing.T) {
			r := newRig(t, c)
			precious := t.TempDir()
			t.Cleanup(func() { unmountAll(t, precious) })
			if err := os.WriteFile(filepath.Join(precious, "data"), []byte("precious"), 0o600); err != nil {
				t.Fatal(err)
			}
			path := r.request.Dir
			if where == "meta" {
				path = r.request.Meta
			}
			if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(precious, path); err != nil {
				t.Fatal(err)
			}
			before := state(t, precious)
			r.withGroup()
			if m, err := r.Plugin.Mount(t.Context(), r.request); err == nil {
				if st, err := os.Lstat(m.Path); err != nil || st.Mode()&os.ModeSymlink != 0 {
					t.Errorf("containers get what the link leads to: %v, %v", st, err)
				}
				r.holds(t, m, c.Want)
			}
			unchanged(t, precious, before)
			r.gone(t)
			unchanged(t, precious, before)
		})
	}
}
