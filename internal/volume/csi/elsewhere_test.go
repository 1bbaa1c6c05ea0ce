package csi

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// staging has a staged volume with its record, and without a driver.
type staging struct {
	*testing.T
	plugin    Plugin
	root, dir string
}

func newStaging(t *testing.T) staging {
	s := staging{T: t, root: t.TempDir()}
	s.plugin = NewPlugin(NewDrivers(Config{BootID: "this"}), s.root)
	s.dir = s.plugin.Dir("d^h")
	s.note(record{keyAttachment: "va-1"})
	return s
}

// note writes the record of the staged volume with these entries.
func (s staging) note(r record) {
	s.Helper()
	r[keyDriver], r[keyHandle], r[keyArguments] = "d", "h", "x"
	s.must(errors.Join(r.create(s.dir, "this"), r.succeed(s.dir, "this")))
}

func (s staging) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s staging) mount(source, path string, bind bool, options string) {
	s.Helper()
	kind, flags := "tmpfs", uintptr(0)
	if bind {
		kind, flags = "", unix.MS_BIND
	}
	s.must(errors.Join(os.MkdirAll(path, 0o700), unix.Mount(source, path, kind, flags, options)))
	s.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
}

// Mounts elsewhere count for a device that a controller may detach, unless the agent made them. A bound directory is no
// device, nor is a file system of the network, nor the one around the place.
func TestElsewhere(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(s staging, stage, other string)
		want string // the root of the mount elsewhere
	}{
		"nothing": {func(staging, string, string) {}, ""},
		"a directory of the device": {func(s staging, stage, other string) {
			s.mount("/dev/x", stage, false, "")
			s.must(os.Mkdir(filepath.Join(stage, "sub"), 0o700))
			s.mount(filepath.Join(stage, "sub"), other, true, "")
		}, "/sub"},
		"mounted twice at the place": {func(s staging, stage, other string) {
			s.mount("/dev/x", stage, false, "")
			s.mount(stage, other, true, "")
			s.mount(stage, stage, true, "")
		}, "/"},
		"only a pod's own": {func(s staging, stage, _ string) {
			s.mount("/dev/x", stage, false, "")
			s.mount(stage, filepath.Join(s.root, "pods/uid/volumes/kubernetes.io~csi/v/mount"), true, "")
		}, ""},
		"another device": {func(s staging, stage, other string) {
			s.mount("/dev/x", stage, false, "")
			s.mount("/dev/x", other, false, "")
		}, ""},
		"not attached": {func(s staging, stage, other string) {
			s.mount("/dev/x", stage, false, "")
			s.mount(stage, other, true, "")
			s.note(record{})
		}, ""},
		"of a kubelet": {func(s staging, stage, other string) {
			s.mount("/dev/x", stage, false, "")
			s.mount(stage, other, true, "")
			s.must(os.WriteFile(filepath.Join(s.dir, recordName), []byte(`{"driverName":"d","volumeHandle":"h"}`), 0o600))
		}, "/"},
		"of the network": {func(s staging, stage, other string) {
			s.mount("server:/share", stage, false, "")
			s.mount(stage, other, true, "")
		}, ""},
		"a bound directory": {func(s staging, stage, other string) {
			s.mount("/dev/x", other, false, "")
			s.must(os.Mkdir(filepath.Join(other, "data"), 0o700))
			s.mount(filepath.Join(other, "data"), stage, true, "")
		}, ""},
		"the file system around": {func(s staging, stage, other string) {
			top := s.TempDir()
			s.mount("/dev/x", top, false, "")
			s.mount(top, other, true, "")
			s.mount(top, filepath.Dir(s.dir), true, "")
			s.note(record{keyAttachment: "va-1"})
			s.mount(top, stage, true, "")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s, other := newStaging(t), t.TempDir()
			c.do(s, filepath.Join(s.dir, stageName), other)
			text, err := s.plugin.elsewhere(s.dir)
			s.must(err)
			if want := `[{"point":"` + other + `","root":"` + c.want + `"}]}`; c.want == "" && text != "" || c.want != "" && !strings.HasSuffix(text, want) {
				t.Errorf("got %q, want %q", text, want)
			}
		})
	}
}

// More mounts than a record has room for don't make the record unreadable.
func TestManyMountsElsewhere(t *testing.T) {
	s, other := newStaging(t), t.TempDir()
	stage := filepath.Join(s.dir, stageName)
	s.mount("/dev/x", stage, false, "")
	for _, name := range strings.Split("abcdefghijklmnop", "") {
		path := filepath.Join(other, strings.Repeat(name, 250), strings.Repeat("\x01", 250), strings.Repeat("\x01", 250), strings.Repeat("\x01", 250))
		s.mount(stage, path, true, "")
	}
	had, err := readRecord(s.dir)
	s.must(err)
	s.must(s.plugin.beginRelease(releasing{dir: s.dir, name: stageName}, had))
	if had, err = readRecord(s.dir); err != nil || had.certain() || len(had[keyElsewhere]) < maxElsewhere/2 {
		t.Errorf("got %d bytes, %v", len(had[keyElsewhere]), err)
	}
	if err := s.plugin.stillElsewhere(s.dir); err == nil || !strings.Contains(err.Error(), "(/dev/x) is still mounted at "+other) {
		t.Errorf("got %v", err)
	}
}

// If the mounts elsewhere can't be recorded, because the disk is full, the record still says that the release has begun.
func TestElsewhereOnAFullDisk(t *testing.T) {
	s, other := newStaging(t), t.TempDir()
	s.mount("tmpfs", s.dir, false, "size=64k")
	s.note(record{keyAttachment: "va-1"})
	stage := filepath.Join(s.dir, stageName)
	s.mount("/dev/x", stage, false, "")
	s.mount(stage, other, true, "")
	for i := 0; ; i++ {
		err := os.WriteFile(filepath.Join(s.dir, strings.Repeat("x", i+1)), make([]byte, 4096), 0o600)
		if errors.Is(err, unix.ENOSPC) {
			break
		}
		s.must(err)
	}
	had, err := readRecord(s.dir)
	s.must(err)
	s.must(s.plugin.beginRelease(releasing{dir: s.dir, name: stageName}, had))
	if had, err = readRecord(s.dir); err != nil || had.certain() || had[keyElsewhere] != "" {
		t.Errorf("got %v, %v", had, err)
	}
	s.must(s.plugin.stillElsewhere(s.dir))
}
