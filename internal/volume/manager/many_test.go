package manager_test

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// The list of volumes in use is made from memory: beside 1,000 volumes that an earlier agent has left, another one is
// attached and released without a read of their directories and records.
func TestManyAttached(t *testing.T) {
	const many = 1000
	t.Setenv("TMPDIR", "/dev/shm") // 1,000 records are synced to disk
	c := newCluster(t, "STAGE_UNSTAGE_VOLUME")
	for i := range many {
		handle := fmt.Sprint("handle-", i)
		device := fmt.Sprintf("plugins/kubernetes.io/csi/%s/%x", attachedDriver, sha256.Sum256([]byte(handle)))
		place := fmt.Sprintf("pods/old-%d/volumes/kubernetes.io~csi/pv-%[1]d", i)
		const note = `{"driverName": %q, "volumeHandle": %q, "volumeLifecycleMode": "Persistent"}`
		for _, dir := range []string{device, place} {
			dir = filepath.Join(c.root, dir)
			must(t, errors.Join(os.MkdirAll(dir, 0o750),
				os.WriteFile(filepath.Join(dir, "vol_data.json"), fmt.Appendf(nil, note, attachedDriver, handle), 0o600)))
		}
	}
	m, _ := c.prepared(fromMemory{c}) // nothing but the test's calls may read
	if len(c.inUse) != many {
		t.Fatalf("%d volumes are in use", len(c.inUse))
	}
	reads := watchReads(t, c.root)
	check := func(step string, want int) {
		t.Helper()
		// To find the devices of a pod that ends, the names of all are read.
		read := slices.DeleteFunc(reads(), func(path string) bool { return path == "/staged" })
		if len(read) > 0 || len(c.inUse) != want {
			t.Errorf("%s: %d volumes in use, want %d; %d reads: %q", step, len(c.inUse), want, len(read),
				read[:min(5, len(read))])
		}
	}
	p := c.user(0)
	c.waits(m, p, "a controller has to attach it")
	c.attach("va-1", "one")
	must(t, m.Prepare(t.Context(), p, c))
	check("attached", many+1)
	must(t, m.Clean(t.Context(), p.UID))
	check("released", many)
	c.detach()
	c.driver.CheckLaw(t)
}

// fromMemory is a cluster that doesn't look at the disk when the volumes in use are reported.
type fromMemory struct{ *cluster }

func (c fromMemory) SetInUse(names []v1.UniqueVolumeName) { c.change(func() { c.inUse = names }) }

// watchReads watches what is below a directory. The function that it returns lists the reads of directories and files
// since its last call.
func watchReads(t *testing.T, root string) (reads func() []string) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	there, dirs := map[string]bool{}, map[int32]string{}
	must(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if there[path] = true; err == nil && d.IsDir() {
			var wd int
			wd, err = unix.InotifyAddWatch(fd, path, unix.IN_ACCESS)
			dirs[int32(wd)] = path
		}
		return err
	}))
	reads = func() (list []string) {
		t.Helper()
		for buf := make([]byte, 1<<20); ; {
			n, err := unix.Read(fd, buf)
			if errors.Is(err, unix.EAGAIN) {
				return list
			}
			must(t, err)
			for at := 0; at < n; {
				size := int(binary.NativeEndian.Uint32(buf[at+12:]))
				name := strings.TrimRight(string(buf[at+unix.SizeofInotifyEvent:at+unix.SizeofInotifyEvent+size]), "\x00")
				path := filepath.Join(dirs[int32(binary.NativeEndian.Uint32(buf[at:]))], name)
				if at += unix.SizeofInotifyEvent + size; there[path] {
					list = append(list, strings.TrimPrefix(path, root))
				}
			}
		}
	}
	reads() // those of the walk
	if _, err := os.ReadDir(root); err != nil || len(reads()) == 0 {
		t.Fatalf("reads aren't noticed: %v", err)
	}
	return reads
}
