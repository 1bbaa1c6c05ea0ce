package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/file"
	"github.com/deckhand-node/deckhand/internal/desired/manifeststore"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/kit/filewatch"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(mounting{m}) }

// mounting runs tests where they may mount.
type mounting struct{ *testing.M }

func (m mounting) Run() int { return mounttest.Run(m.M) }

func do(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	do(t, os.WriteFile(path, []byte(text), 0o600))
}

// run runs a source until the test ends or the function returned is called.
func run(t testing.TB, s *file.Source) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			do(t, <-done)
		})
	}
	t.Cleanup(stop)
	return stop
}

// watched runs a source on a directory where web.yaml is.
func watched(t *testing.T) (dir string, sink *sourcetest.Recorder) {
	t.Helper()
	dir, sink = t.TempDir(), sourcetest.NewRecorder()
	write(t, filepath.Join(dir, "web.yaml"), sourcetest.Manifest("web", "app:1"))
	run(t, newSource(t, dir, t.TempDir(), sink))
	sink.Wait(t, "the pod", sourcetest.Has("web-node1=app:1"))
	return dir, sink
}

// However an editor saves: the new version comes, and the pod is never gone between.
func TestWaysToSave(t *testing.T) {
	text := sourcetest.Manifest("web", "app:2")
	ways := map[string]func(t *testing.T, dir, path string){
		"truncate and write": func(t *testing.T, _, path string) { write(t, path, text) },
		"slowly, in pieces": func(t *testing.T, _, path string) {
			f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
			do(t, err)
			for chunk := range slices.Chunk([]byte(text), 10) {
				_, err := f.Write(chunk)
				do(t, err)
			}
			do(t, f.Close())
		},
		"rename into place": func(t *testing.T, dir, path string) {
			write(t, filepath.Join(dir, ".web.yaml.tmp"), text)
			do(t, os.Rename(filepath.Join(dir, ".web.yaml.tmp"), path))
		},
		"vim: move to a backup, write anew, remove the backup": func(t *testing.T, dir, path string) {
			write(t, filepath.Join(dir, "4913"), "")
			do(t, os.Remove(filepath.Join(dir, "4913")))
			write(t, filepath.Join(dir, ".web.yaml.swp"), "b0VIM")
			do(t, os.Rename(path, path+"~"))
			write(t, path, text)
			do(t, os.Remove(path+"~"))
			do(t, os.Remove(filepath.Join(dir, ".web.yaml.swp")))
		},
		"emacs: copy to a backup, lock by a link, write": func(t *testing.T, dir, path string) {
			do(t, os.Symlink("user@host.1", filepath.Join(dir, ".#web.yaml")))
			write(t, filepath.Join(dir, "#web.yaml#"), "half a text")
			write(t, path+"~", sourcetest.Manifest("web", "app:1"))
			write(t, path, text)
			do(t, os.Remove(filepath.Join(dir, "#web.yaml#")))
			do(t, os.Remove(filepath.Join(dir, ".#web.yaml")))
		},
		"remove, then write": func(t *testing.T, _, path string) {
			do(t, os.Remove(path))
			write(t, path, text)
		},
		"a hard link": func(t *testing.T, dir, path string) {
			write(t, filepath.Join(dir, ".new"), text)
			do(t, os.Remove(path))
			do(t, os.Link(filepath.Join(dir, ".new"), path))
		},
		"a link to a file elsewhere": func(t *testing.T, dir, path string) {
			elsewhere := filepath.Join(t.TempDir(), "x")
			write(t, elsewhere, text)
			do(t, os.Symlink(elsewhere, filepath.Join(dir, ".new")))
			do(t, os.Rename(filepath.Join(dir, ".new"), path))
		},
	}
	for name, save := range ways {
		t.Run(name, func(t *testing.T) {
			dir, sink := watched(t)
			sink.Clear()
			save(t, dir, filepath.Join(dir, "web.yaml"))
			sink.Wait(t, "the new version", func(r desired.Report) bool {
				return sourcetest.Has("web-node1=app:2")(r) && len(r.Problems) == 0
			})
			for _, r := range sink.All() {
				if len(r.Claims) != 1 {
					t.Errorf("in between: %s", sourcetest.Describe(r))
				}
			}
		})
	}
}

// TestDeletedAtOnce: a file that is deleted and written again with the same text defines its pods anew, unless it was only moved away.
func TestDeletedAtOnce(t *testing.T) {
	text := sourcetest.Manifest("web", "app:1")
	var both func() // awaits that two files define the pod
	for name, tc := range map[string]struct {
		atOnce, anew bool
		save         func(t *testing.T, path string)
	}{
		"deleted":              {true, true, func(t *testing.T, path string) { do(t, os.Remove(path)); write(t, path, text) }},
		"deleted, not at once": {false, false, func(t *testing.T, path string) { do(t, os.Remove(path)); write(t, path, text) }},
		"moved away": {true, false, func(t *testing.T, path string) {
			do(t, os.Rename(path, path+"~"))
			write(t, path, text)
			do(t, os.Remove(path+"~"))
		}},
		"overwritten":           {true, false, func(t *testing.T, path string) { write(t, path, text) }},
		"another put in place":  {true, false, func(t *testing.T, path string) { write(t, path+"~", text); do(t, os.Rename(path+"~", path)) }},
		"deleted after another": {true, false, func(t *testing.T, path string) { write(t, path+".yaml", text); both(); do(t, os.Remove(path)) }},
	} {
		t.Run(name, func(t *testing.T) {
			dir, sink := t.TempDir(), sourcetest.NewRecorder()
			path, mark := filepath.Join(dir, "web.yaml"), filepath.Join(dir, "mark.yaml")
			write(t, path, text)
			config := file.Config{Path: dir, Every: time.Hour, DeletedAtOnce: tc.atOnce, Files: filewatch.New(filewatch.Every, logr.Discard())}
			run(t, file.New(config, sourcetest.NewReader(pod.SourceFile), manifeststore.NewStore(t.TempDir(), "", pod.SourceFile), sink, logFor(t)))
			identity := func() (uid, seen string) {
				last, _ := sink.Last()
				for _, c := range last.Claims {
					if p := c.Desired.Pod; p.Name == "web-node1" {
						uid, seen = string(p.UID), p.Annotations["kubernetes.io/config.seen"]
					}
				}
				return uid, seen
			}
			sink.Wait(t, "the pod", sourcetest.Has("web-node1=app:1"))
			both = func() { sink.Wait(t, "both files", sourcetest.Has("web-node1=app:1", "web-node1=app:1")) }
			uid, seen := identity()
			tc.save(t, path)
			write(t, mark, sourcetest.Manifest("mark", "app:1")) // the kernel tells things in order
			sink.Wait(t, "all of that", func(r desired.Report) bool {
				return sourcetest.Has("mark-node1=app:1", "web-node1=app:1")(r) && len(r.Problems) == 0
			})
			now, again := identity()
			if now != uid || (again != seen) != tc.anew {
				t.Errorf("UID %s, seen %s; were %s, %s", now, again, uid, seen)
			}
		})
	}
}

func TestSavingTheSameTextChangesNothing(t *testing.T) {
	dir, sink := watched(t)
	path := filepath.Join(dir, "web.yaml")
	sink.Clear()
	do(t, os.Rename(path, path+"~"))
	write(t, path, sourcetest.Manifest("web", "app:1"))
	write(t, filepath.Join(dir, "db.yaml"), sourcetest.Manifest("db", "app:1"))
	sink.Wait(t, "the other pod", sourcetest.Has("web-node1=app:1", "db-node1=app:1"))
	for _, r := range sink.All() {
		if !slices.Contains(sourcetest.Pods(r), "web-node1=app:1") {
			t.Errorf("in between: %s", sourcetest.Describe(r))
		}
	}
}

func TestWhatIsNoManifestFile(t *testing.T) {
	outside := t.TempDir()
	tests := map[string]struct {
		make func(path string) error
		why  string
	}{
		"a directory":   {func(p string) error { return os.Mkdir(p, 0o700) }, "is a directory"},
		"a FIFO":        {func(p string) error { return unix.Mkfifo(p, 0o600) }, "is a FIFO"},
		"a device":      {func(p string) error { return os.Symlink("/dev/zero", p) }, "is a device"},
		"a broken link": {func(p string) error { return os.Symlink(filepath.Join(outside, "none"), p) }, "doesn't exist"},
		"a link that leads in a circle": {func(p string) error {
			loop := filepath.Join(outside, "loop")
			if err := os.Symlink(loop, loop); err != nil {
				return err
			}
			return os.Symlink(loop, p)
		}, "too many levels of symbolic links"},
		"a large file": {func(p string) error {
			if err := os.WriteFile(p+"~", nil, 0o600); err != nil {
				return err
			}
			if err := os.Truncate(p+"~", 10<<20+1); err != nil {
				return err
			}
			return os.Rename(p+"~", p)
		}, "larger than 10 MiB"},
		"a socket": {func(p string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer unix.Close(fd)
			return unix.Bind(fd, &unix.SockaddrUnix{Name: p})
		}, "is a socket"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp("", "pods")
			do(t, err)
			t.Cleanup(func() { do(t, os.RemoveAll(dir)) })
			path := filepath.Join(dir, "web.yaml")
			write(t, path, sourcetest.Manifest("web", "app:1"))
			checkpoints := t.TempDir()
			sink := sourcetest.NewRecorder()
			stop := run(t, newSource(t, dir, checkpoints, sink))
			sink.Wait(t, "the pod", sourcetest.Has("web-node1=app:1"))

			odd := filepath.Join(dir, "odd.yaml")
			do(t, test.make(odd))
			hasPods := func(pods ...string) func(desired.Report) bool {
				return func(r desired.Report) bool {
					return sourcetest.Has(pods...)(r) && len(r.Problems) == 1 && strings.Contains(r.Problems[0].Message, test.why)
				}
			}
			sink.Wait(t, "a problem", hasPods("web-node1=app:1"))
			do(t, os.Remove(path)) // a directory can't be moved over a file
			do(t, os.Rename(odd, path))
			sink.Wait(t, "the pod kept", hasPods("web-node1=app:1!"))
			stop()

			again := sourcetest.NewRecorder()
			run(t, newSource(t, dir, checkpoints, again))
			again.Wait(t, "the pod kept over a restart", hasPods("web-node1=app:1!"))
			do(t, os.Remove(path))
			again.Wait(t, "the pod gone with what was in its place", func(r desired.Report) bool {
				return sourcetest.Has()(r) && len(r.Problems) == 0
			})
		})
	}
}

// A link in place of the one file of manifests is reported as well, and never read.
func TestAFileThatLinksToADevice(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods.yaml")
	do(t, os.Symlink("/dev/zero", path))
	sink := sourcetest.NewRecorder()
	run(t, newSource(t, path, t.TempDir(), sink))
	sink.Wait(t, "a problem", func(r desired.Report) bool {
		return sourcetest.Has()(r) && len(r.Problems) == 1 && strings.Contains(r.Problems[0].Message, "is a device")
	})
}

func TestIgnoredNames(t *testing.T) {
	dir, sink := watched(t)
	for _, name := range []string{".hidden.yaml", ".x.swp", "x.swp", "x~", "#x#", "4913", "web.tar", "web.TAR", "web.tar.gz", "web.tgz", "web.tar.zst"} {
		write(t, filepath.Join(dir, name), sourcetest.Manifest("no", "app:1"))
	}
	write(t, filepath.Join(dir, "tar"), sourcetest.Manifest("seen", "app:1"))
	sink.Wait(t, "the pod of the name that isn't ignored", sourcetest.Has("web-node1=app:1", "seen-node1=app:1"))
}

// Volumes of Secrets and ConfigMaps swap the link ..data.
func TestConfigMapStyleDir(t *testing.T) {
	dir := t.TempDir()
	version := func(n int) {
		data := fmt.Sprintf("..v%d", n)
		do(t, os.Mkdir(filepath.Join(dir, data), 0o700))
		write(t, filepath.Join(dir, data, "web.yaml"), sourcetest.Manifest("web", fmt.Sprintf("app:%d", n)))
		do(t, os.Symlink(data, filepath.Join(dir, "..data_tmp")))
		do(t, os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	}
	version(1)
	do(t, os.Symlink("..data/web.yaml", filepath.Join(dir, "web.yaml")))
	sink := sourcetest.NewRecorder()
	run(t, newSource(t, dir, t.TempDir(), sink))
	for n := 1; n <= 3; n++ {
		sink.Wait(t, "the version", sourcetest.Has(fmt.Sprintf("web-node1=app:%d", n)))
		version(n + 1)
	}
}

// there matches a report with these pods and no problem.
func there(pods ...string) func(desired.Report) bool {
	return func(r desired.Report) bool { return sourcetest.Has(pods...)(r) && len(r.Problems) == 0 }
}

// unreachable matches a report with these pods, and a problem that says why their manifests can't be read.
func unreachable(why string, pods ...string) func(desired.Report) bool {
	return func(r desired.Report) bool {
		return sourcetest.Has(pods...)(r) && slices.ContainsFunc(r.Problems, func(p pod.Problem) bool {
			return strings.Contains(p.Message, why) && (len(pods) == 0 || strings.Contains(p.Message, "run on"))
		})
	}
}

func TestDirComesAndIsSwapped(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "etc", "pods")
	sink := sourcetest.NewRecorder()
	run(t, newSource(t, dir, t.TempDir(), sink))
	sink.Wait(t, "the missing directory to be reported", unreachable("doesn't exist"))
	do(t, os.MkdirAll(dir, 0o700))
	write(t, filepath.Join(dir, "web.yaml"), sourcetest.Manifest("web", "app:1"))
	sink.Wait(t, "the pod", there("web-node1=app:1"))
	next := filepath.Join(root, "next")
	do(t, os.Mkdir(next, 0o700))
	write(t, filepath.Join(next, "db.yaml"), sourcetest.Manifest("db", "app:1"))
	sink.Clear()
	do(t, os.Rename(dir, filepath.Join(root, "old")))
	do(t, os.Rename(next, dir))
	sink.Wait(t, "the new directory's pods", there("db-node1=app:1"))
	for _, r := range sink.All() {
		if len(r.Claims) == 0 {
			t.Errorf("while the directory was swapped: %s", sourcetest.Describe(r))
		}
	}
}

// However the manifests get out of reach: their pods run on, also over a restart of the agent, and are as they were once the
// manifests are back. A file that is deleted then counts as before.
func TestUnreachableManifests(t *testing.T) {
	mount := func(t *testing.T, dir string) {
		do(t, unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"))
		t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }) // unless the test has done that
	}
	for name, tc := range map[string]struct {
		// prepare makes dir before manifests are put into it; lose and back are what happens then.
		prepare    func(t *testing.T, dir string)
		lose, back func(t *testing.T, dir string)
		why        string
		// emptied says that back leaves the directory without its manifests.
		emptied bool
	}{
		"removed": {
			lose: func(t *testing.T, dir string) { do(t, os.RemoveAll(dir)) },
			back: func(t *testing.T, dir string) { do(t, os.Mkdir(dir, 0o700)) },
			why:  "doesn't exist", emptied: true,
		},
		"removed with what is above": {
			lose: func(t *testing.T, dir string) { do(t, os.RemoveAll(filepath.Dir(dir))) },
			back: func(t *testing.T, dir string) { do(t, os.MkdirAll(dir, 0o700)) },
			why:  "doesn't exist", emptied: true,
		},
		"renamed": {
			lose: func(t *testing.T, dir string) { do(t, os.Rename(dir, dir+".old")) },
			back: func(t *testing.T, dir string) { do(t, os.Rename(dir+".old", dir)) },
			why:  "doesn't exist",
		},
		"renamed, and an empty one in its place": {
			lose: func(t *testing.T, dir string) { do(t, os.Rename(dir, dir+".old")); do(t, os.Mkdir(dir, 0o700)) },
			back: func(t *testing.T, dir string) { do(t, os.Remove(dir)); do(t, os.Rename(dir+".old", dir)) },
			why:  "another one",
		},
		"unmounted": {
			prepare: mount,
			lose:    func(t *testing.T, dir string) { do(t, unix.Unmount(dir, 0)) },
			back:    mount,
			why:     "another one", emptied: true,
		},
		"unmounted, with something else in the mount point": {
			prepare: func(t *testing.T, dir string) {
				write(t, filepath.Join(dir, "README"), "the disk isn't mounted")
				mount(t, dir)
			},
			lose: func(t *testing.T, dir string) { do(t, unix.Unmount(dir, 0)) },
			back: mount,
			why:  "another one", emptied: true,
		},
		"an empty disk mounted over it": {
			lose: mount,
			back: func(t *testing.T, dir string) { do(t, unix.Unmount(dir, 0)) },
			why:  "another one",
		},
		"what is above unmounted": {
			prepare: func(t *testing.T, dir string) {
				do(t, os.Remove(dir))
				mount(t, filepath.Dir(dir))
				do(t, os.Mkdir(dir, 0o700))
			},
			lose: func(t *testing.T, dir string) { do(t, unix.Unmount(filepath.Dir(dir), 0)) },
			back: func(t *testing.T, dir string) { mount(t, filepath.Dir(dir)); do(t, os.Mkdir(dir, 0o700)) },
			why:  "doesn't exist", emptied: true,
		},
		"a file in its place": {
			lose: func(t *testing.T, dir string) { do(t, os.Rename(dir, dir+".old")); write(t, dir, "no manifest") },
			back: func(t *testing.T, dir string) { do(t, os.Remove(dir)); do(t, os.Rename(dir+".old", dir)) },
			why:  "a file without a usable manifest",
		},
		"a file in place of what is above": {
			lose: func(t *testing.T, dir string) {
				do(t, os.Rename(filepath.Dir(dir), filepath.Dir(dir)+".old"))
				write(t, filepath.Dir(dir), "")
			},
			back: func(t *testing.T, dir string) {
				do(t, os.Remove(filepath.Dir(dir)))
				do(t, os.Rename(filepath.Dir(dir)+".old", filepath.Dir(dir)))
			},
			why: "not a directory",
		},
		"a link that leads nowhere": {
			prepare: func(t *testing.T, dir string) {
				do(t, os.Rename(dir, dir+".real"))
				do(t, os.Symlink(dir+".real", dir))
			},
			lose: func(t *testing.T, dir string) { do(t, os.Rename(dir+".real", dir+".old")) },
			back: func(t *testing.T, dir string) { do(t, os.Rename(dir+".old", dir+".real")) },
			why:  "symbolic link",
		},
		"a link in a circle": {
			lose: func(t *testing.T, dir string) { do(t, os.Rename(dir, dir+".old")); do(t, os.Symlink(dir, dir)) },
			back: func(t *testing.T, dir string) { do(t, os.Remove(dir)); do(t, os.Rename(dir+".old", dir)) },
			why:  "too many levels",
		},
	} {
		for when, restart := range map[string]struct{ before, after bool }{
			"while it runs": {}, "while it is stopped": {before: true}, "and then it is restarted": {after: true},
		} {
			t.Run(name+" "+when, func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(t.TempDir(), "disk", "pods")
				do(t, os.MkdirAll(dir, 0o700))
				if tc.prepare != nil {
					tc.prepare(t, dir)
				}
				fill := func() {
					write(t, filepath.Join(dir, "web.yaml"), sourcetest.Manifest("web", "app:1"))
					write(t, filepath.Join(dir, "db.yaml"), sourcetest.Manifest("db", "app:1"))
				}
				fill()
				checkpoints, pods := t.TempDir(), t.TempDir()
				var sink *sourcetest.Recorder
				start := func() (stop func()) {
					sink = sourcetest.NewRecorder()
					config := file.Config{Path: dir, Every: time.Second, Files: filewatch.New(filewatch.Every, logr.Discard())} // a mount is no event
					return run(t, file.New(config, sourcetest.NewReader(pod.SourceFile), manifeststore.NewStore(checkpoints, pods, pod.SourceFile), sink, logFor(t)))
				}
				stop := start()
				first := sink.Wait(t, "the pods", there("db-node1=app:1", "web-node1=app:1"))
				seen := map[string]string{}
				for _, c := range first.Claims {
					do(t, os.Mkdir(filepath.Join(pods, string(c.Desired.Pod.UID)), 0o700)) // it runs
					seen[string(c.Desired.Pod.UID)] = c.Desired.Pod.Annotations["kubernetes.io/config.seen"]
				}
				if restart.before {
					stop()
				}
				tc.lose(t, dir)
				if restart.before {
					start()
				}
				lost := unreachable(tc.why, "db-node1=app:1!", "web-node1=app:1!")
				sink.Wait(t, "the pods to run on", lost)
				if restart.after {
					stop()
					start()
					sink.Wait(t, "the pods to run on after a restart", lost)
				}
				tc.back(t, dir)
				if tc.emptied {
					fill()
				}
				last := sink.Wait(t, "the manifests to be back", there("db-node1=app:1", "web-node1=app:1"))
				for _, c := range last.Claims {
					if got := c.Desired.Pod.Annotations["kubernetes.io/config.seen"]; got != seen[string(c.Desired.Pod.UID)] {
						t.Errorf("pod %s isn't the one from before: seen %s", c.Desired.Pod.Name, got)
					}
				}
				for _, r := range sink.All() {
					if len(r.Claims) != 2 {
						t.Errorf("meanwhile: %s", sourcetest.Describe(r))
					}
				}
				do(t, os.Remove(filepath.Join(dir, "db.yaml")))
				sink.Wait(t, "the deleted one to go", there("web-node1=app:1"))
			})
		}
	}
}

// Without pods that run, as after `deckhand down`, there is nothing to keep.
func TestNothingIsKeptThatDoesNotRun(t *testing.T) {
	dir, checkpoints := filepath.Join(t.TempDir(), "pods"), t.TempDir()
	do(t, os.Mkdir(dir, 0o700))
	write(t, filepath.Join(dir, "web.yaml"), sourcetest.Manifest("web", "app:1"))
	sink := sourcetest.NewRecorder()
	stop := run(t, newSource(t, dir, checkpoints, sink))
	sink.Wait(t, "the pod", there("web-node1=app:1"))
	stop()
	do(t, os.RemoveAll(dir))
	sink = sourcetest.NewRecorder()
	run(t, newSource(t, dir, checkpoints, sink))
	sink.Wait(t, "no pod", unreachable("doesn't exist"))
}

// A file that is the only manifest is deleted where its directory is still there.
func TestTheOnlyFile(t *testing.T) {
	for name, tc := range map[string]struct {
		lose func(t *testing.T, path string)
		want func(desired.Report) bool
	}{
		"deleted":           {func(t *testing.T, path string) { do(t, os.Remove(path)) }, unreachable("doesn't exist")},
		"directory renamed": {func(t *testing.T, path string) { do(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".old")) }, unreachable("doesn't exist", "web-node1=app:1!")},
		"another directory": {func(t *testing.T, path string) {
			do(t, os.Rename(filepath.Dir(path), filepath.Dir(path)+".old"))
			do(t, os.Mkdir(filepath.Dir(path), 0o700))
		}, unreachable("doesn't exist", "web-node1=app:1!")},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "dir", "web.yaml")
			do(t, os.Mkdir(filepath.Dir(path), 0o700))
			write(t, path, sourcetest.Manifest("web", "app:1"))
			sink := sourcetest.NewRecorder()
			run(t, newSource(t, path, t.TempDir(), sink))
			sink.Wait(t, "the pod", there("web-node1=app:1"))
			tc.lose(t, path)
			sink.Wait(t, "the outcome", tc.want)
		})
	}
}

func TestPathIsADirThenAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pods")
	sink := sourcetest.NewRecorder()
	run(t, newSource(t, path, t.TempDir(), sink))
	for range 2 {
		do(t, os.Mkdir(path, 0o700))
		write(t, filepath.Join(path, "web.yaml"), sourcetest.Manifest("web", "app:1"))
		sink.Wait(t, "the directory's pod", sourcetest.Has("web-node1=app:1"))
		do(t, os.RemoveAll(path))
		write(t, path, sourcetest.Manifest("db", "app:1"))
		sink.Wait(t, "the file's pod", sourcetest.Has("db-node1=app:1"))
		do(t, os.Remove(path))
	}
}

// The name moves along with the manifest: nobody is reported two claims to it.
func TestRenamedManifest(t *testing.T) {
	dir, sink := watched(t)
	before, _ := sink.Last()
	do(t, os.Rename(filepath.Join(dir, "web.yaml"), filepath.Join(dir, "site.yaml")))
	r := sink.Wait(t, "the new origin", func(r desired.Report) bool {
		return len(r.Claims) == 1 && filepath.Base(r.Claims[0].Desired.Origin) == "site.yaml"
	})
	if a, b := before.Claims[0].Desired.Pod, r.Claims[0].Desired.Pod; a.UID != b.UID || a.Annotations["kubernetes.io/config.seen"] != b.Annotations["kubernetes.io/config.seen"] {
		t.Error("the pod is another after its manifest was renamed")
	}
	for _, r := range sink.All() {
		if len(r.Claims) != 1 {
			t.Errorf("in between: %s", sourcetest.Describe(r))
		}
	}
}

func TestIncumbentStaysOverRestart(t *testing.T) {
	dir, checkpoints := t.TempDir(), t.TempDir()
	sink := sourcetest.NewRecorder()
	stop := run(t, newSource(t, dir, checkpoints, sink))
	write(t, filepath.Join(dir, "z.yaml"), sourcetest.Manifest("web", "app:1"))
	sink.Wait(t, "the first", sourcetest.Has("web-node1=app:1"))
	write(t, filepath.Join(dir, "a.yaml"), sourcetest.Manifest("web", "app:2"))
	both := sourcetest.Has("web-node1=app:1", "web-node1=app:2")
	first := func(r desired.Report) string {
		return slices.MinFunc(r.Claims, func(a, b desired.Claim) int { return a.Since.Compare(b.Since) }).Desired.Origin
	}
	if got := first(sink.Wait(t, "both", both)); filepath.Base(got) != "z.yaml" {
		t.Errorf("%s is first", got)
	}
	stop()
	again := sourcetest.NewRecorder()
	run(t, newSource(t, dir, checkpoints, again))
	if got := first(again.Wait(t, "both", both)); filepath.Base(got) != "z.yaml" {
		t.Errorf("%s is first after a restart", got)
	}
}

// A disk that can't be written stops no pod.
func TestFailingCheckpoint(t *testing.T) {
	dir, checkpoints := t.TempDir(), filepath.Join(t.TempDir(), "in the way")
	write(t, checkpoints, "")
	write(t, filepath.Join(dir, "web.yaml"), sourcetest.Manifest("web", "app:1"))
	sink := sourcetest.NewRecorder()
	run(t, newSource(t, dir, checkpoints, sink))
	sink.Wait(t, "the pod and a problem", func(r desired.Report) bool {
		return sourcetest.Has("web-node1=app:1")(r) && slices.ContainsFunc(r.Problems, func(p pod.Problem) bool {
			return strings.Contains(p.Message, "can't be kept on disk")
		})
	})
}

// Random writes, all kinds of them at once, end with what is on disk.
func TestManyWriters(t *testing.T) {
	dir, sink := watched(t)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			path := filepath.Join(dir, fmt.Sprintf("w%d.yaml", w))
			for i := range 25 {
				text := sourcetest.Manifest(fmt.Sprintf("w%d", w), fmt.Sprintf("app:%d", i))
				switch i % 3 {
				case 0:
					_ = os.WriteFile(path, []byte(text), 0o600)
				case 1:
					_ = os.WriteFile(path+"~", []byte(text), 0o600)
					_ = os.Rename(path+"~", path)
				case 2:
					_ = os.WriteFile(path, []byte(text[:len(text)/2]), 0o600)
					_ = os.Remove(path)
				}
			}
		})
	}
	wg.Wait()
	sink.Wait(t, "what is on disk", func(r desired.Report) bool {
		return sourcetest.Has("web-node1=app:1", "w0-node1=app:24", "w1-node1=app:24", "w2-node1=app:24", "w3-node1=app:24")(r) && len(r.Problems) == 0
	})
}

func TestRenameIntoPlaceShowsQuickly(t *testing.T) {
	dir, sink := watched(t)
	best := time.Hour
	for i := range 20 { // the best of some, as the machine may be busy
		name := fmt.Sprintf("new%d", i)
		write(t, filepath.Join(dir, ".new"), sourcetest.Manifest(name, "app:1"))
		begin := time.Now()
		do(t, os.Rename(filepath.Join(dir, ".new"), filepath.Join(dir, name)))
		sink.Wait(t, "the new pod", func(r desired.Report) bool { return slices.Contains(sourcetest.Pods(r), name+"-node1=app:1") })
		best = min(best, time.Since(begin))
	}
	if best > 50*time.Millisecond {
		t.Errorf("it took %v at best, want 50 ms", best)
	}
}
