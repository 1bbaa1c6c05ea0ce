package objectfiles

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/atomicwriter"
	"github.com/deckhand-node/deckhand/internal/volume/killtest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// origin is where files come from, in a test.
type origin struct {
	mu    sync.Mutex
	files map[string]atomicwriter.File
	err   error
}

func (o *origin) set(text string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.files, o.err = map[string]atomicwriter.File{
		"a": {Data: []byte(text), Mode: 0o644}, "b/c": {Data: []byte(text), Mode: 0o400},
	}, nil
}

func (o *origin) fail(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.files, o.err = nil, err
}

func (o *origin) get(context.Context, volume.Request) (map[string]atomicwriter.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.files, o.err
}

func (o *origin) onDisk() *Plugin {
	return newPlugin(source{Name: "kubernetes.io/disk", Supports: func(s volume.Spec) bool { return s.Volume.ConfigMap != nil }, Files: o.get})
}

func (o *origin) inMemory() *Plugin {
	return newPlugin(source{
		Name: "kubernetes.io/memory", Supports: func(s volume.Spec) bool { return s.Volume.ConfigMap != nil }, Files: o.get,
		Memory: func(volume.Spec) int { return 1 },
	})
}

var kinds = map[string]func(*origin) *Plugin{"on disk": (*origin).onDisk, "in memory": (*origin).inMemory}

func spec() volume.Spec {
	return volume.Spec{Volume: &v1.Volume{Name: "conf", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}}}
}

func request(t *testing.T, root string) volume.Request {
	dir := filepath.Join(root, "volumes", "plugin", "conf")
	if t != nil {
		t.Cleanup(func() {
			for unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
			}
		})
	}
	return volume.Request{Pod: &v1.Pod{}, Spec: spec(), Place: volume.Place{Dir: dir}}
}

func TestModesAndOwners(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, c := range []struct {
		plugin  string
		fsGroup *int64
		top     uint32
		gid     uint32
		a, bc   uint32
	}{
		{"on disk", nil, 0o777, 0, 0o644, 0o400},
		{"on disk", ptr.To[int64](2000), 0o2777, 2000, 0o644, 0o440},
		{"in memory", nil, 0o1777, 0, 0o644, 0o400},
		{"in memory", ptr.To[int64](2000), 0o3777, 2000, 0o644, 0o440},
	} {
		o := &origin{}
		o.set("x")
		r := request(t, t.TempDir())
		r.Pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: c.fsGroup}
		m, err := kinds[c.plugin](o).Mount(t.Context(), r)
		must(t, err)
		if m.Path != r.Dir || !m.ReadOnly || m.Ownership || m.Image != nil {
			t.Errorf("%+v", m)
		}
		for name, want := range map[string]uint32{"": unix.S_IFDIR | c.top, "a": unix.S_IFREG | c.a, "b/c": unix.S_IFREG | c.bc} {
			var st unix.Stat_t
			must(t, unix.Stat(filepath.Join(r.Dir, name), &st))
			if st.Mode != want || st.Gid != c.gid || st.Uid != 0 {
				t.Errorf("%s, %q: mode %o, %d:%d; want %o, 0:%d", c.plugin, name, st.Mode, st.Uid, st.Gid, want, c.gid)
			}
		}
		var st unix.Statfs_t
		must(t, unix.Statfs(r.Dir, &st))
		if tmp := st.Type == unix.TMPFS_MAGIC; tmp != (c.plugin == "in memory") {
			t.Errorf("%s: on a tmpfs: %t", c.plugin, tmp)
		}
	}
}

// An agent that comes back finds a pod whose ConfigMap has gone: its containers keep
// what they have, and the next one starts with it.
func TestWhatIsInUseStaysWhenItsSourceIsGone(t *testing.T) {
	gone := volume.Awaits(pod.Object{Kind: "ConfigMap", Namespace: "default", Name: "web"}, "it isn't there")
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			o := &origin{}
			p := kind(o)
			r := request(t, t.TempDir())
			holds := func(want string) {
				t.Helper()
				for _, file := range []string{"a", "b/c"} {
					if data, err := os.ReadFile(filepath.Join(r.Dir, file)); err != nil || string(data) != want {
						t.Errorf("%s: %q, %v", file, data, err)
					}
				}
			}
			mount := func(inUse, want bool) {
				t.Helper()
				r.InUse = inUse
				m, err := p.Mount(t.Context(), r)
				if want && (err != nil || m.Path != r.Dir || !m.ReadOnly || m.Retained != inUse) || !want && !errors.Is(err, gone) {
					t.Errorf("in use %t: %+v, %v", inUse, m, err)
				}
			}
			o.fail(gone)
			mount(false, false)
			mount(true, false) // in use, it is said, but there is nothing
			if _, err := os.Lstat(r.Dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a directory was made: %v", err)
			}
			o.set("1")
			mount(false, true)
			o.fail(gone)
			mount(true, true)
			mount(false, false)
			holds("1")
			if changed, err := p.Refresh(t.Context(), r); changed || !errors.Is(err, gone) {
				t.Errorf("refresh: %t, %v", changed, err)
			}
			holds("1")

			// Somebody ends the agent just then: that isn't success.
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			r.InUse = true
			if _, err := p.Mount(ended, r); !errors.Is(err, context.Canceled) {
				t.Errorf("%v", err)
			}

			// What an agent that was killed left undone is done.
			must(t, os.Remove(filepath.Join(r.Dir, "a")))
			mount(true, true)
			holds("1")

			o.set("2") // it comes back
			changed, err := p.Refresh(t.Context(), r)
			if !changed || err != nil {
				t.Errorf("refresh: %t, %v", changed, err)
			}
			holds("2")

			must(t, os.Remove(filepath.Join(r.Dir, "..data")))
			o.fail(gone)
			mount(true, false) // it isn't complete any more
		})
	}
}

func TestRefreshOfWhatIsNotMounted(t *testing.T) {
	for name, kind := range kinds {
		o := &origin{}
		o.set("1")
		r := request(t, t.TempDir())
		if changed, err := kind(o).Refresh(t.Context(), r); changed || err == nil {
			t.Errorf("%s: %t, %v", name, changed, err)
		}
		if _, err := os.Lstat(r.Dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a directory was made: %v", name, err)
		}
	}
}

// beneath is what lies on the disk where the volume is mounted.
func beneath(t *testing.T, dir string) []string {
	t.Helper()
	for unix.Unmount(dir, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
	}
	var names []string
	must(t, filepath.WalkDir(filepath.Dir(dir), func(path string, e fs.DirEntry, err error) error {
		if err == nil && path != dir && path != filepath.Dir(dir) {
			names = append(names, path)
		}
		return err
	}))
	return names
}

// TestNothingTouchesTheDisk looks below the mount after every step, and at what a reboot leaves.
func TestNothingTouchesTheDisk(t *testing.T) {
	o := &origin{}
	o.set("s3cret")
	p := o.inMemory()
	killtest.Run(t, killtest.Case{
		Child: func(dir string) error {
			_, err := p.Mount(context.Background(), request(nil, dir))
			return err
		},
		Check: func(t *testing.T, dir string, _ int) {
			r := request(t, dir)
			if _, err := os.Lstat(r.Dir); errors.Is(err, fs.ErrNotExist) {
				return
			}
			if left := beneath(t, r.Dir); len(left) > 0 {
				t.Errorf("on the disk: %q", left)
			}
			// After a reboot the directory is there alone. Nothing is written to it.
			r.InUse = true
			if _, err := p.Refresh(t.Context(), r); !errors.Is(err, mounts.ErrNotMounted) {
				t.Errorf("refresh: %v", err)
			}
			_, err := p.Mount(t.Context(), r)
			must(t, err)
			if data, err := os.ReadFile(filepath.Join(r.Dir, "b", "c")); err != nil || string(data) != "s3cret" {
				t.Errorf("%q, %v", data, err)
			}
			if left := beneath(t, r.Dir); len(left) > 0 {
				t.Errorf("on the disk: %q", left)
			}
		},
	})
}

// What an earlier version, or a restored backup, left on the disk isn't shown as a Secret.
func TestAVolumeOnDiskIsNotTakenForOneInMemory(t *testing.T) {
	o := &origin{}
	o.set("1")
	r := request(t, t.TempDir())
	_, err := o.onDisk().Mount(t.Context(), r)
	must(t, err)
	o.fail(errors.New("gone"))
	r.InUse = true
	if _, err := o.inMemory().Mount(t.Context(), r); err == nil {
		t.Error("it was taken")
	}
}

func TestAMountThatIsInUseIsLeftAlone(t *testing.T) {
	o := &origin{}
	o.set("1")
	r := request(t, t.TempDir())
	p := o.inMemory()
	id := func() int {
		t.Helper()
		list, err := mountinfo.GetMounts(mountinfo.PrefixFilter(r.Dir))
		must(t, err)
		if len(list) != 1 {
			t.Fatalf("%d mounts", len(list))
		}
		return list[0].ID
	}
	_, err := p.Mount(t.Context(), r)
	must(t, err)
	first := id()
	o.set("2")
	r.InUse = true
	_, err = p.Mount(t.Context(), r)
	must(t, err)
	if id() != first {
		t.Error("it was mounted anew")
	}
	if data, err := os.ReadFile(filepath.Join(r.Dir, "a")); err != nil || string(data) != "2" {
		t.Errorf("%q, %v", data, err)
	}
}

func TestMemoryIsBounded(t *testing.T) {
	o := &origin{files: map[string]atomicwriter.File{}}
	for i := range perObject/os.Getpagesize() + 1 {
		o.files[fmt.Sprint(i)] = atomicwriter.File{Data: []byte("x")}
	}
	r := request(t, t.TempDir())
	_, err := o.inMemory().Mount(t.Context(), r)
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "32 MiB of memory") {
		t.Errorf("%v", err)
	}
	o.set("1")
	if _, err := o.inMemory().Mount(t.Context(), r); err != nil {
		t.Errorf("nothing may be left of it: %v", err)
	}
}

func TestPathsThatDontGoTogether(t *testing.T) {
	o := &origin{files: map[string]atomicwriter.File{"a": {}, "a/b": {}}}
	for name, kind := range kinds {
		r := request(t, t.TempDir())
		if _, err := kind(o).Mount(t.Context(), r); err == nil || !strings.Contains(err.Error(), `"a/b"`) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(r.Dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: a directory was made: %v", name, err)
		}
	}
}
