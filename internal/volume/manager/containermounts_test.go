package manager

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/kit/mounts"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
	"github.com/deckhand-node/deckhand/internal/volume/subpath"
	"github.com/deckhand-node/deckhand/internal/volume/teardown"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// house is a pod's directory with a volume in it.
type house struct {
	pods, volume string
	maker        mountMaker
}

func newHouse(t *testing.T) house {
	t.Helper()
	pods := filepath.Join(t.TempDir(), "pods")
	h := house{pods: pods, volume: filepath.Join(pods, "uid/volumes/kind/data")}
	must(t, os.MkdirAll(h.volume, 0o755))
	t.Cleanup(func() { must(t, teardown.Remove(context.Background(), pods, "uid")) })
	h.maker = mountMaker{
		SubPaths: subpath.New(pods),
		Touch: func(ctx context.Context, _ *volumestate.Mounted, _ string, do func(context.Context) (string, error)) (string, error) {
			return do(ctx)
		},
	}
	return h
}

// mount asks for one mount of the volume by the container "main".
func (h house) mount(t *testing.T, vm v1.VolumeMount, readOnly bool, vars ...*runtimeapi.KeyValue) (*runtimeapi.Mount, error) {
	t.Helper()
	vm.Name = "data"
	wanted := &volumestate.Wanted{Spec: volume.Spec{Volume: &v1.Volume{Name: "data"}}, Place: volumestate.Place{UID: "uid", Plugin: "kind", Name: "data"}}
	return h.maker.Mount(t.Context(), mountRequest{
		Container: &v1.Container{Name: "main", VolumeMounts: []v1.VolumeMount{vm}}, Env: vars,
		Volume: &volumestate.Mounted{Wanted: wanted, Mounted: volume.Mounted{Path: h.volume, ReadOnly: readOnly}},
	})
}

// A container that only reads may be the first that asks for a directory which others write to.
func TestADirIsMadeForThoseWhoOnlyRead(t *testing.T) {
	h := newHouse(t)
	got, err := h.mount(t, v1.VolumeMount{MountPath: "/logs", SubPath: "logs", ReadOnly: true}, false)
	must(t, err)
	if st, err := os.Stat(filepath.Join(h.volume, "logs")); err != nil || !st.IsDir() || !got.Readonly {
		t.Errorf("%v, %v, mounted as %v", st, err, got)
	}
}

func TestEachThingIsSaidOnce(t *testing.T) {
	h := newHouse(t)
	for link, target := range map[string]string{"out": "/", "loop": "loop"} {
		must(t, os.Symlink(target, filepath.Join(h.volume, link)))
	}
	must(t, os.WriteFile(filepath.Join(h.volume, "file"), nil, 0o600))
	const at = `volume "data" at /data: `
	for name, c := range map[string]struct {
		vm       v1.VolumeMount
		readOnly bool
		want     string
	}{
		"leads out":      {v1.VolumeMount{SubPath: "out/x"}, false, at + `subPath "out/x": it leads out of the volume: links have to be relative and stay inside the volume`},
		"circle":         {v1.VolumeMount{SubPath: "loop"}, false, at + `subPath "loop": its links form a loop, or lead through /proc: links have to be relative and stay inside the volume`},
		"missing":        {v1.VolumeMount{SubPath: "none"}, true, at + `subPath "none": it isn't in the volume, and can't be made there, because the volume is read-only: correct the path, or put it there first`},
		"below a file":   {v1.VolumeMount{SubPath: "file/x"}, false, at + `subPath "file/x": a part of it isn't a directory: correct the path, or replace that`},
		"too long":       {v1.VolumeMount{SubPathExpr: "$(LONG)"}, false, `container "main": ` + at + `subPathExpr "$(LONG)" is longer than a path can be: 5000 bytes, where 4095 are allowed`},
		"steps":          {v1.VolumeMount{SubPathExpr: "$(UP)/x"}, false, `container "main": ` + at + `subPathExpr "$(UP)/x" must be a path in the volume, not absolute and without ".."`},
		"no variable":    {v1.VolumeMount{SubPathExpr: "a/$(NONE)"}, false, `container "main": ` + at + `subPathExpr "a/$(NONE)" refers to the environment variable NONE, which the container doesn't have`},
		"no propagation": {v1.VolumeMount{MountPropagation: ptr.To(v1.MountPropagationBidirectional)}, false, `container "main": ` + at + `mountPropagation Bidirectional is for privileged containers only: use HostToContainer`},
	} {
		c.vm.MountPath = "/data"
		_, err := h.mount(t, c.vm, c.readOnly, &runtimeapi.KeyValue{Key: "UP", Value: []byte("..")}, &runtimeapi.KeyValue{Key: "LONG", Value: bytes.Repeat([]byte("x"), 5000)})
		got := fmt.Sprint(err)
		if f := (*pod.Failure)(nil); errors.As(err, &f) {
			got = f.Message
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
	if list, err := os.ReadDir(filepath.Join(h.pods, "uid/volume-subpaths")); !os.IsNotExist(err) {
		t.Errorf("left behind: %v, %v", list, err)
	}
}

// An expression's variables may come from Secrets.
func TestNothingRevealsWhatAnExpressionCameTo(t *testing.T) {
	h := newHouse(t)
	must(t, os.Symlink("/", filepath.Join(h.volume, "out")))
	must(t, os.WriteFile(filepath.Join(h.volume, "file"), nil, 0o600))
	for _, value := range []string{
		"/hush", "a/../hush", "hush\x00", "out/hush", "file/hush", strings.Repeat("hush", 100), strings.Repeat("hush/", 2000),
	} {
		for _, readOnly := range []bool{false, true} {
			_, err := h.mount(t, v1.VolumeMount{MountPath: "/data", SubPathExpr: "$(PASSWORD)"}, readOnly, &runtimeapi.KeyValue{Key: "PASSWORD", Value: []byte(value)})
			if err == nil || strings.Contains(fmt.Sprint(err), "hush") || !strings.Contains(fmt.Sprint(err), `subPathExpr "$(PASSWORD)"`) {
				t.Errorf("%.20q: %v", value, err)
			}
			if f := (*pod.Failure)(nil); errors.As(err, &f) && strings.Contains(fmt.Sprintf("%+v", *f), "hush") {
				t.Errorf("%.20q: %+v", value, *f)
			}
		}
	}
}

// A part's mount is shared where pods have their directories, which helps nobody if the volume isn't.
func TestAPartIsPropagatedAsItsVolumeIs(t *testing.T) {
	h := newHouse(t)
	mount := func(dir string, kind uintptr) {
		must(t, unix.Mount(dir, dir, "", unix.MS_BIND, ""))
		must(t, unix.Mount("", dir, "", kind, ""))
		t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	}
	mount(h.pods, unix.MS_SHARED)
	mount(h.volume, unix.MS_PRIVATE)
	for _, part := range []string{"", "part"} {
		_, err := h.mount(t, v1.VolumeMount{MountPath: "/d", SubPath: part, MountPropagation: ptr.To(v1.MountPropagationHostToContainer)}, false)
		if err == nil || !strings.Contains(err.Error(), h.volume+", is private") {
			t.Errorf("subPath %q: %v", part, err)
		}
	}
}

func TestExpressions(t *testing.T) {
	h := newHouse(t)
	env := []*runtimeapi.KeyValue{{Key: "A", Value: []byte("x")}, {Key: "A", Value: []byte("y")}, {Key: "HERE", Value: []byte(".")}}
	for expr, want := range map[string]string{"$(A)": "y", "$$(A)": "$(A)", "a/$(A)/b": "a/y/b", "$A": "$A", "..$(A)": "..y", "$(HERE)": "."} {
		got, err := h.mount(t, v1.VolumeMount{MountPath: "/d", SubPathExpr: expr}, false, env...)
		must(t, err)
		one, err := os.Stat(got.HostPath)
		must(t, err)
		other, err := os.Stat(filepath.Join(h.volume, want))
		must(t, err)
		if !os.SameFile(one, other) {
			t.Errorf("%s isn't %s", expr, want)
		}
	}
}

// A container that can't start is tried again and again.
func TestManyTriesLeaveOneMount(t *testing.T) {
	h := newHouse(t)
	open := func() int {
		list, err := os.ReadDir("/proc/self/fd")
		must(t, err)
		return len(list)
	}
	file := filepath.Join(h.volume, "conf")
	before := 0
	for i := range 300 {
		// Another file each time, as a write by rename makes it.
		must(t, os.WriteFile(file+"~", []byte{byte(i)}, 0o600))
		must(t, os.Rename(file+"~", file))
		got, err := h.mount(t, v1.VolumeMount{MountPath: "/conf", SubPath: "conf"}, false)
		must(t, err)
		if text, err := os.ReadFile(got.HostPath); err != nil || !slices.Equal(text, []byte{byte(i)}) {
			t.Fatalf("try %d reads %v, %v", i, text, err)
		}
		if i == 0 {
			before = open()
		}
	}
	if list, err := mounts.List(h.pods); err != nil || len(list) != 1 {
		t.Errorf("mounts: %v, %v", list, err)
	}
	if after := open(); after > before {
		t.Errorf("%d files are open, after the first try %d", after, before)
	}
}
