package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/host/rootdir"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

// smallDisk is a file system for a root directory, which the test fills and frees.
type smallDisk struct {
	name string
	// mount makes the file system at a directory; the rig unmounts it.
	mount func(t *testing.T, dir string)
	// inodes says that its inodes are used up, not its bytes.
	inodes bool
	dir    string
}

func smallDisks() []*smallDisk {
	tmpfs := func(options string) func(*testing.T, string) {
		return func(t *testing.T, dir string) {
			if err := unix.Mount("deckhand-test", dir, "tmpfs", 0, options+",mode=755"); err != nil {
				t.Fatal(err)
			}
		}
	}
	ext4 := func(t *testing.T, dir string) { mountExt4(t, dir, 48<<20) }
	return []*smallDisk{
		{name: "tmpfs", mount: tmpfs("size=40m")},
		{name: "no inodes", mount: tmpfs("nr_inodes=400"), inodes: true},
		{name: "ext4", mount: ext4},
	}
}

// mountExt4 mounts a new ext4 at a directory; the rig unmounts it. An error of the file system makes it read-only.
func mountExt4(t *testing.T, dir string, size int64) {
	t.Helper()
	image := filepath.Join(t.TempDir(), "image")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, size)); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{
		{"mkfs.ext4", "-q", "-F", "-m0", image},
		{"mount", "-o", "loop,errors=remount-ro", image, dir},
	} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v: %s", command, err, out)
		}
	}
}

// fillerDir has the files with which a test fills the disk.
const fillerDir = "filler"

func (d *smallDisk) filler() string { return filepath.Join(d.dir, fillerDir) }

// fill uses up the free room of the disk. The agent may write and remove files at the same time.
func (d *smallDisk) fill(t *testing.T) {
	t.Helper()
	if err := os.Mkdir(d.filler(), 0o755); err != nil && !errors.Is(err, fs.ErrExist) && !errors.Is(err, unix.ENOSPC) && !errors.Is(err, unix.EDQUOT) {
		t.Fatal(err)
	}
	for n := 0; ; n++ {
		f, err := os.OpenFile(filepath.Join(d.filler(), strconv.Itoa(n)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return
		}
		for _, size := range []int{64 << 10, 1 << 10, 1} {
			for err = nil; err == nil && !d.inodes; {
				_, err = f.Write(make([]byte, size))
			}
		}
		f.Close()
		if !d.inodes {
			return
		}
	}
}

func (d *smallDisk) free(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(d.filler()); err != nil {
		t.Fatal(err)
	}
}

// dieOnFullDisk fills the disk, kills the agent n times while it is full, and frees it. Every second time the agent has
// come so far that it answers.
func (l *life) dieOnFullDisk(d *smallDisk, rnd *rand.Rand, n int) {
	l.t.Helper()
	await := func(what string, done func() bool) {
		l.t.Helper()
		for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				l.t.Fatalf("on the full disk: %s", what)
			}
		}
	}
	for i := range n {
		d.fill(l.t)
		if rnd.IntN(4) == 0 && l.pid() == 0 { // as another version or configuration has
			if err := os.Remove(filepath.Join(d.dir, rootdir.Record)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				l.t.Fatal(err)
			}
		}
		l.live()
		if i%2 == 0 {
			await("the agent doesn't answer", func() bool { return l.isDead() || l.answers() })
		}
		after := time.AfterFunc(time.Duration(rnd.IntN(1000))*time.Millisecond, func() { l.kill("on the full disk") })
		await("the agent isn't killed", l.isDead)
		after.Stop()
		l.wholeFiles(d)
	}
	d.fill(l.t)
	l.live()
	l.logf("the disk is freed")
	d.free(l.t)
}

// answers reports whether an agent answers.
func (l *life) answers() bool {
	ctx, cancel := context.WithTimeout(l.t.Context(), time.Second)
	defer cancel()
	_, err := local.NewClient(local.SocketPath(l.path("root"))).Snapshot(ctx)
	return err == nil
}

// isDead reports whether the agent has been killed.
func (l *life) isDead() bool { return l.pid() == 0 }

// wholeFiles fails the test if the agent, which is dead, has left a file that is written in part, or has renamed a
// damaged one.
func (l *life) wholeFiles(d *smallDisk) {
	l.t.Helper()
	l.checkpoints()
	err := filepath.WalkDir(d.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.HasPrefix(path, d.filler()) || tempSuffix.MatchString(path) {
			return err // the next agent removes temporary files
		}
		if strings.HasSuffix(path, ".corrupt") {
			l.t.Errorf("%s: an agent found a damaged file", path)
		}
		if filepath.Ext(path) != ".json" && e.Name() != "pressure_state" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil && !json.Valid(text) {
			l.t.Errorf("%s is written in part: %q", path, text)
		}
		return err
	})
	if err != nil {
		l.t.Error(err)
	}
}
