package filetree_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/deckhand-node/deckhand/internal/volume/filetree"
)

const group = 4711

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// look describes a file as "user:group mode".
func look(t testing.TB, path string) string {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return fmt.Sprintf("%d:%d %04o", st.Uid, st.Gid, st.Mode&0o7777)
}

func expect(t testing.TB, dir string, want map[string]string) {
	t.Helper()
	for name, want := range want {
		if got := look(t, filepath.Join(dir, name)); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

// volume makes a directory with some of everything.
func volume(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.MkdirAll(at("directory/sub"), 0o755))
	for name, mode := range map[string]uint32{"secret": 0o600, "directory/script": 0o755, "directory/sub/none": 0, "setuid": 0o4755, "setuid too": 0o4770, "setgid": 0o2755} {
		must(t, os.WriteFile(at(name), nil, 0o600))
		must(t, unix.Chown(at(name), 1000, 1000))
		must(t, unix.Chmod(at(name), mode))
	}
	must(t, os.WriteFile(at("mine"), nil, 0o600))
	must(t, unix.Chown(at("mine"), 1000, group))
	must(t, unix.Chmod(at("mine"), 0o2660))
	must(t, os.Symlink("secret", at("link")))
	must(t, unix.Mkfifo(at("fifo"), 0o600))
	must(t, unix.Chmod(at("fifo"), 0o600))
	must(t, unix.Mknod(at("device"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
	return dir
}

func TestFilesAreGivenToTheGroup(t *testing.T) {
	for name, c := range map[string]struct {
		options filetree.Options
		want    map[string]string
	}{
		"writable": {filetree.Options{}, map[string]string{
			"": "0:4711 2775", "directory": "0:4711 2775", "directory/sub": "0:4711 2775",
			"secret": "1000:4711 0660", "directory/script": "1000:4711 0775", "directory/sub/none": "1000:4711 0660",
			"setuid": "1000:4711 4775", "setuid too": "1000:4711 4770", "setgid": "1000:4711 0775", "mine": "1000:4711 2660",
			"link": "0:4711 0777", "fifo": "0:4711 0660", "device": "0:0 0600",
		}},
		"read-only": {filetree.Options{ReadOnly: true}, map[string]string{
			"": "0:4711 2755", "directory": "0:4711 2755",
			"secret": "1000:4711 0640", "directory/script": "1000:4711 0755", "directory/sub/none": "1000:4711 0440",
			"link": "0:4711 0777",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := volume(t)
			c.options.GID = group
			must(t, filetree.Apply(t.Context(), dir, c.options))
			expect(t, dir, c.want)
		})
	}
}

func TestWhatFitsIsntTouched(t *testing.T) {
	dir := volume(t)
	must(t, filetree.Apply(t.Context(), dir, filetree.Options{GID: group}))
	changed := func() unix.Timespec {
		var st unix.Stat_t
		must(t, unix.Lstat(filepath.Join(dir, "secret"), &st))
		return st.Ctim
	}
	before := changed()
	must(t, filetree.Apply(t.Context(), dir, filetree.Options{GID: group}))
	if after := changed(); after != before {
		t.Error("a file that fits was changed again")
	}
}

func TestThePolicySaysWhetherFilesAreLookedAt(t *testing.T) {
	for name, c := range map[string]struct {
		policy v1.PodFSGroupChangePolicy
		spoil  func(dir string) error // the top directory
		want   string                 // of a file
	}{
		"Always":                   {v1.FSGroupChangeAlways, nil, "1000:4711 0660"},
		"none":                     {"", nil, "1000:4711 0660"},
		"OnRootMismatch, fits":     {v1.FSGroupChangeOnRootMismatch, nil, "1000:1000 0600"},
		"OnRootMismatch, group":    {v1.FSGroupChangeOnRootMismatch, func(dir string) error { return os.Chown(dir, 0, 0) }, "1000:4711 0660"},
		"OnRootMismatch, bits":     {v1.FSGroupChangeOnRootMismatch, func(dir string) error { return unix.Chmod(dir, 0o2750) }, "1000:4711 0660"},
		"OnRootMismatch, setgid":   {v1.FSGroupChangeOnRootMismatch, func(dir string) error { return unix.Chmod(dir, 0o770) }, "1000:4711 0660"},
		"OnRootMismatch, has more": {v1.FSGroupChangeOnRootMismatch, func(dir string) error { return unix.Chmod(dir, 0o2777) }, "1000:1000 0600"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := volume(t)
			must(t, os.Chown(dir, 0, group))
			must(t, unix.Chmod(dir, 0o2770))
			if c.spoil != nil {
				must(t, c.spoil(dir))
			}
			must(t, filetree.Apply(t.Context(), dir, filetree.Options{GID: group, Policy: c.policy}))
			if got := look(t, filepath.Join(dir, "secret")); got != c.want {
				t.Errorf("a file is %s, want %s", got, c.want)
			}
		})
	}
}

func TestAnInterruptedChangeIsDoneAgain(t *testing.T) {
	dir := t.TempDir()
	for i := range 3000 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
	}
	stopped := errors.New("stopped by the test")
	ctx, stop := context.WithCancelCause(t.Context())
	o := filetree.Options{GID: group, Policy: v1.FSGroupChangeOnRootMismatch, Progress: func(int) { stop(stopped) }}
	if err := filetree.Apply(ctx, dir, o); !errors.Is(err, stopped) {
		t.Fatalf("got %v", err)
	}
	count := func() (n int) {
		for i := range 3000 {
			if strings.HasPrefix(look(t, filepath.Join(dir, fmt.Sprint(i))), "0:4711 0660") {
				n++
			}
		}
		return n
	}
	if n := count(); n == 0 || n == 3000 {
		t.Fatalf("%d files were changed when it was stopped", n)
	}
	o.Progress = nil
	must(t, filetree.Apply(t.Context(), dir, o))
	if n := count(); n != 3000 {
		t.Errorf("%d of 3000 files are changed", n)
	}
}

// What was half given to another group isn't taken for the first one's, though its top directory is that one's still.
func TestAnInterruptedChangeIsNoticedByTheGroupBefore(t *testing.T) {
	dir := t.TempDir()
	const files = 2500
	for i := range files {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
	}
	must(t, filetree.Apply(t.Context(), dir, filetree.Options{GID: group}))
	ctx, stop := context.WithCancel(t.Context())
	if err := filetree.Apply(ctx, dir, filetree.Options{GID: group + 1, Progress: func(int) { stop() }}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	must(t, filetree.Apply(t.Context(), dir, filetree.Options{GID: group, Policy: v1.FSGroupChangeOnRootMismatch}))
	for i := range files {
		if got := look(t, filepath.Join(dir, fmt.Sprint(i))); got != "0:4711 0660" {
			t.Fatalf("a file is %s", got)
		}
	}
	expect(t, dir, map[string]string{"": "0:4711 2775"})
}

func TestProgressIsReported(t *testing.T) {
	dir := t.TempDir()
	for i := range 2500 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
	}
	last, calls := 0, 0
	must(t, filetree.Apply(t.Context(), dir, filetree.Options{GID: group, Progress: func(done int) {
		if done <= last {
			t.Errorf("%d after %d", done, last)
		}
		last = done
		calls++
	}}))
	if calls < 2 || last < 2000 {
		t.Errorf("%d calls, the last one with %d", calls, last)
	}
}

func TestMountsInTheVolumeAreLeftAlone(t *testing.T) {
	dir, other := volume(t), t.TempDir()
	must(t, os.Chmod(other, 0o700))
	must(t, os.WriteFile(filepath.Join(other, "canary"), nil, 0o600))
	for from, to := range map[string]string{other: "directory/sub", filepath.Join(other, "canary"): "secret"} {
		at := filepath.Join(dir, to)
		must(t, unix.Mount(from, at, "", unix.MS_BIND, ""))
		t.Cleanup(func() { must(t, unix.Unmount(at, unix.MNT_DETACH)) })
	}
	must(t, filetree.Apply(t.Context(), dir, filetree.Options{GID: group}))
	expect(t, other, map[string]string{"": "0:0 0700", "canary": "0:0 0600"})
	expect(t, dir, map[string]string{"": "0:4711 2775", "directory": "0:4711 2775"})
}

func TestWhatCantBeChangedIsNamed(t *testing.T) {
	dir := t.TempDir()
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
	must(t, os.WriteFile(filepath.Join(dir, "stuck"), nil, 0o600))
	must(t, unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	err := filetree.Apply(t.Context(), dir, filetree.Options{GID: group})
	if !errors.Is(err, unix.EROFS) || !strings.Contains(err.Error(), `"stuck"`) || !strings.Contains(err.Error(), dir) {
		t.Errorf("got %v", err)
	}
}

func TestAVolumeThatIsntThereIsAnError(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	if err := filetree.Apply(t.Context(), dir, filetree.Options{GID: group}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// A pod swaps a file and a directory of its volume for links to what isn't its: that never changes hands.
func TestSwappedLinksNeverReachOutside(t *testing.T) {
	top := t.TempDir()
	dir, outside := filepath.Join(top, "volume"), filepath.Join(top, "outside")
	must(t, errors.Join(os.Mkdir(dir, 0o755), os.Mkdir(outside, 0o700)))
	must(t, os.WriteFile(filepath.Join(outside, "canary"), nil, 0o600))
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.WriteFile(at("file"), nil, 0o600))
	must(t, os.Symlink("../outside/canary", at("filelink")))
	must(t, os.Mkdir(at("directory"), 0o700))
	must(t, os.WriteFile(at("directory/canary"), nil, 0o600))
	must(t, os.Symlink("../outside", at("directorylink")))

	var swapping sync.WaitGroup
	stop := make(chan struct{})
	for _, name := range []string{"file", "directory"} {
		swapping.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := unix.Renameat2(unix.AT_FDCWD, at(name), unix.AT_FDCWD, at(name+"link"), unix.RENAME_EXCHANGE); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	defer swapping.Wait()
	defer close(stop)
	for i := range 4000 {
		// Another group each time, so that there is something to do.
		if err := filetree.Apply(t.Context(), dir, filetree.Options{GID: group + i%2}); err != nil {
			t.Fatal(err)
		}
		if i%100 == 0 {
			expect(t, outside, map[string]string{"": "0:0 0700", "canary": "0:0 0600"})
		}
	}
	expect(t, outside, map[string]string{"": "0:0 0700", "canary": "0:0 0600"})
}

func BenchmarkApplyWhereAllFits(b *testing.B) {
	dir := b.TempDir()
	for i := range 10_000 {
		must(b, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), nil, 0o600))
	}
	must(b, filetree.Apply(b.Context(), dir, filetree.Options{GID: group}))
	for b.Loop() {
		must(b, filetree.Apply(b.Context(), dir, filetree.Options{GID: group}))
	}
}
