package room_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/room"
	"github.com/deckhand-node/deckhand/internal/kit/atomicfile"
)

// tmpfs mounts a file system with these options.
func tmpfs(t *testing.T, options string) string {
	t.Helper()
	dir := t.TempDir()
	mount(t, "deckhand-test", dir, "tmpfs", options)
	return dir
}

func mount(t *testing.T, source, dir, fstype, options string) {
	t.Helper()
	if err := unix.Mount(source, dir, fstype, 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
}

// withoutFallocate mounts a small file system that can't allocate a file's blocks ahead.
func withoutFallocate(t *testing.T) string {
	t.Helper()
	return ext4(t, 24<<20, "-m0", "-O^extent,^64bit,^has_journal")
}

// ext4 mounts a file system of a size in bytes on a loop device.
func ext4(t *testing.T, size int64, options ...string) string {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", append(options, "-q", "-F", image)...).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	out, err := exec.Command("losetup", "--find", "--show", image).CombinedOutput()
	if err != nil {
		t.Fatalf("losetup: %v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "--detach", device).CombinedOutput(); err != nil {
			t.Errorf("losetup: %v: %s", err, out)
		}
	})
	dir := t.TempDir()
	mount(t, device, dir, "ext4", "")
	return dir
}

// fill takes all bytes of a file system, or all its inodes, with files in a directory that it returns.
func fill(t *testing.T, dir string, inodes bool) string {
	t.Helper()
	in := filepath.Join(dir, "fill")
	if err := os.Mkdir(in, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		f, err := os.OpenFile(filepath.Join(in, strconv.Itoa(i)), os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			break
		}
		if !inodes {
			for _, size := range []int{1 << 20, 4 << 10, 1} {
				for err = nil; err == nil; {
					_, err = f.Write(make([]byte, size))
				}
			}
		}
		if f.Close(); err != nil {
			break
		}
	}
	return in
}

// blocks returns how many bytes of the disk the files below a directory take.
func blocks(t *testing.T, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Mode().IsRegular() {
			bytes += info.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

func TestMeasure(t *testing.T) {
	dir := tmpfs(t, "size=32m,nr_inodes=200")
	for _, path := range []string{dir, filepath.Join(dir, "none", "there")} {
		got, err := room.Measure(path)
		if want := (room.FileSystem{Point: dir, Path: dir, Size: 32 << 20, Free: 32 << 20, Inodes: 200, FreeInodes: 199}); err != nil || got != want {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
		if got.Full() || got.String() != dir+" has 32.0 MiB of 32.0 MiB and 199 of 200 inodes free" {
			t.Errorf("%s: full %v", got, got.Full())
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 17<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := room.Measure(dir); !got.Full() || got.NoInodes() {
		t.Errorf("%s: full %v, of inodes %v", got, got.Full(), got.NoInodes())
	}
	if err := os.Remove(filepath.Join(dir, "file")); err != nil {
		t.Fatal(err)
	}
	fill(t, dir, true)
	if got, _ := room.Measure(dir); !got.Full() || !got.NoInodes() {
		t.Errorf("%s: full %v, of inodes %v", got, got.Full(), got.NoInodes())
	}
	if got := (room.FileSystem{Size: room.Enough, Free: room.Enough}); got.Full() {
		t.Error("a file system that doesn't limit inodes counts as full")
	}
	if got := (room.FileSystem{}); got.Full() {
		t.Error("a file system without a size counts as full")
	}
	before := room.FileSystem{Size: 1 << 30, Free: 5, Inodes: 1000, FreeInodes: 7}
	for _, c := range []struct {
		free, inodes uint64
		more         bool
	}{{5, 7, false}, {4 + room.Enough, 134, false}, {5 + room.Enough, 0, true}, {0, 135, true}} {
		if now := (room.FileSystem{Free: c.free, FreeInodes: c.inodes}); now.Roomier(before) != c.more {
			t.Errorf("%+v after %+v: more room is %v", now, before, !c.more)
		}
	}
}

// TestRoomForRoot: while other users have no room on an ext4 file system, there is some for root, and a reserve is made of it.
func TestRoomForRoot(t *testing.T) {
	dir := ext4(t, 800<<20, "-m5")
	take := func(name string, size uint64) {
		t.Helper()
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(unix.Fallocate(int(f.Fd()), 0, 0, int64(size)), f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	statfs := func() (others, all uint64) {
		var st unix.Statfs_t
		if err := unix.Statfs(dir, &st); err != nil {
			t.Fatal(err)
		}
		return st.Bavail * uint64(st.Bsize), st.Bfree * uint64(st.Bsize)
	}
	others, _ := statfs()
	take("others", others)
	others, all := statfs()
	on, err := room.Measure(dir)
	if err != nil || others > 1<<20 || on.Full() || on.Free < 38<<20 || on.Free >= all {
		t.Fatalf("other users have %d bytes and %d are free, for root %d: %v", others, all, on.Free, err)
	}
	file, err := os.Create(filepath.Join(dir, "user"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var words strings.Builder
	user := exec.Command("dd", "if=/dev/zero", "bs=1M", "count=2")
	user.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	user.Stdout, user.Stderr = file, &words
	if err := user.Run(); err == nil || !strings.Contains(words.String(), "No space left") {
		t.Fatalf("another user can write: %v: %s", err, &words)
	}
	reserve := room.NewReserve(dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := reserve.Run(ctx); err != nil || blocks(t, filepath.Join(dir, room.Dir)) < 1<<20 {
		t.Errorf("there is no reserve while root has room: %v", err)
	}
	if reserve.Release(); blocks(t, filepath.Join(dir, room.Dir)) < 1<<20 {
		t.Error("the reserve was given up while root has room")
	}
	// Root takes the rest, and what it then gives back is for root alone.
	take("root", 30<<20)
	fill(t, dir, false)
	write := func() error { return atomicfile.Write(filepath.Join(dir, "file"), make([]byte, 100<<10), 0o600) }
	if on, err := room.Measure(dir); err != nil || on.Free > 1<<20 || !errors.Is(write(), unix.ENOSPC) {
		t.Fatalf("the disk isn't full for root: %+v, %v", on, err)
	}
	watch(t, dir, func(w *watched) {
		w.Failed(write())
		w.since(time.Minute)
		if err := os.Remove(filepath.Join(dir, "root")); err != nil {
			t.Fatal(err)
		}
		if got := w.since(5 * time.Second); got != "freed" || write() != nil {
			t.Errorf("with room for root: %q", got)
		}
		w.Failed(errors.New("rpc error: write " + dir + "/x: no space left on device"))
		if got := w.since(5 * time.Second); got != "" {
			t.Errorf("a text without a disk that is full for root: %s", got)
		}
	})
	if others, _ := statfs(); others > 0 {
		t.Errorf("other users have %d bytes", others)
	}
}

func TestExplain(t *testing.T) {
	full, roomy := tmpfs(t, "size=1m,nr_inodes=0"), tmpfs(t, "size=64m,nr_inodes=0")
	const words = " has 1.0 MiB of 1.0 MiB free: "
	text := errors.New(`rpc error: failed to write "` + full + `/x": No space left on device`)
	for name, tc := range map[string]struct {
		err  error
		dirs []string
		want string
	}{
		"a call":              {&fs.PathError{Op: "open", Path: full + "/x", Err: unix.ENOSPC}, []string{roomy}, "the disk is full: " + full + words},
		"a quota":             {fmt.Errorf("save: %w", &fs.PathError{Op: "write", Path: roomy, Err: unix.EDQUOT}), nil, "the disk has too little room: " + roomy + " has 64.0 MiB of 64.0 MiB free: save: "},
		"the runtime's text":  {text, []string{roomy}, "the disk is full: " + full + words},
		"a directory":         {errors.New("disk quota exceeded"), []string{roomy, full}, "the disk is full: " + full + words},
		"the first directory": {errors.New("disk quota exceeded"), []string{roomy}, "the disk has too little room: " + roomy},
		"a path elsewhere":    {errors.New("write /in/a/container: no space left on device"), nil, "the disk is full: write /in/a/container: "},
		"explained already":   {room.Explain(text), []string{full}, "the disk is full: " + full + words + "rpc error"},
		"another error":       {unix.EIO, []string{full}, "input/output error"},
	} {
		got := room.Explain(tc.err, tc.dirs...)
		if !strings.HasPrefix(got.Error(), tc.want) || strings.Count(got.Error(), "the disk") > 1 || !errors.Is(got, tc.err) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// TestReserveOutlivesAHog: a program that takes whatever is given up leaves something for the record that is written once
// the program has been ended, and calls at the same time share a part.
func TestReserveOutlivesAHog(t *testing.T) {
	dir := tmpfs(t, "size=40m")
	r := room.NewReserve(dir)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx); err != nil {
		t.Fatal(err)
	}
	files := func() int {
		list, err := filepath.Glob(filepath.Join(dir, room.Dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	fill(t, dir, false)
	save := func() error { return atomicfile.Write(filepath.Join(dir, "end"), make([]byte, 60<<10), 0o600) }
	for i := range 3 { // the record of the verdict, and two retries
		tried := 0
		err := r.Spend(func() error {
			if tried++; tried > 1 {
				fill(t, dir, false)
			}
			return save()
		})
		if !errors.Is(err, unix.ENOSPC) || tried != 2 || files() != 28-4*i {
			t.Fatalf("try %d: %v after %d calls; the reserve has %d files", i, err, tried, files())
		}
	}
	before := files()
	var both, ended sync.WaitGroup
	both.Add(2)
	for i := range 2 {
		ended.Go(func() {
			tried := false
			err := r.Spend(func() error {
				err := atomicfile.Write(filepath.Join(dir, strconv.Itoa(i)), make([]byte, 60<<10), 0o600)
				if !tried {
					tried = true
					both.Done()
					both.Wait() // both have failed before either gives up a part
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	if ended.Wait(); files() != before-4 {
		t.Errorf("the reserve has %d files of %d", files(), before)
	}
	if err := r.Spend(save); err != nil {
		t.Errorf("the final record: %v", err)
	}
}

// TestReserve: the reserve has real blocks and inodes, which are free once it is given up, and is made again as soon as there is room.
func TestReserve(t *testing.T) {
	for name, tc := range map[string]struct {
		dir    string
		inodes bool
	}{
		"bytes":             {tmpfs(t, "size=40m"), false},
		"inodes":            {tmpfs(t, "size=40m,nr_inodes=400"), true},
		"without fallocate": {withoutFallocate(t), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, dir := room.NewReserve(tc.dir), filepath.Join(tc.dir, room.Dir)
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- r.Run(ctx) }()
				defer cancel()
				synctest.Wait()
				if got := blocks(t, dir); got < 1<<20 || got > 5<<18 {
					t.Fatalf("the reserve takes %d bytes of the disk, want 1 MiB", got)
				}
				filled := fill(t, tc.dir, tc.inodes)
				save := func() error { return atomicfile.Write(filepath.Join(tc.dir, "end"), make([]byte, 100<<10), 0o600) }
				if err := save(); !errors.Is(err, unix.ENOSPC) {
					t.Fatalf("the disk isn't full: %v", err)
				}
				if err := r.Spend(save); err != nil {
					t.Error(err)
				}
				for range 7 { // others are faster
					fill(t, tc.dir, tc.inodes)
					_ = r.Spend(func() error { return unix.ENOSPC })
				}
				fill(t, tc.dir, tc.inodes)
				time.Sleep(time.Hour)
				if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("there is a reserve on a full disk: %v", err)
				}
				if err := r.Spend(save); !errors.Is(err, unix.ENOSPC) {
					t.Errorf("without a reserve: %v", err)
				}
				if err := os.RemoveAll(filled); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute + time.Second)
				if got := blocks(t, dir); got < 1<<20 {
					t.Errorf("the reserve takes %d bytes of the disk again, want 1 MiB", got)
				}
				if r.Release(); blocks(t, dir) == 0 {
					t.Error("it was given up on a disk with room")
				}
				cancel()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				fill(t, tc.dir, tc.inodes)
				if r.Release(); r.Spend(save) != nil {
					t.Error("it wasn't given up before a write of others")
				}
			})
		})
	}
	var none *room.Reserve
	none.Release()
	if err := none.Spend(func() error { return unix.ENOSPC }); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
}
