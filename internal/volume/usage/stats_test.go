package usage_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

// claim is a volume bound to a claim and mounted at path.
func claim(namespace, name, path string) volume.Instance {
	return volume.Instance{
		Spec: volume.Spec{
			Volume:     &v1.Volume{Name: "v"},
			Claim:      &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}},
			Persistent: &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pv"}},
		},
		Mounted: volume.Mounted{Path: path},
	}
}

// disks are file systems that answer, or don't.
type disks struct {
	mu    sync.Mutex
	asked []string
	hang  map[string]chan struct{}
	fail  map[string]error
}

func (d *disks) statfs(path string, st *unix.Statfs_t) error {
	d.mu.Lock()
	d.asked = append(d.asked, path)
	hang, err := d.hang[path], d.fail[path]
	d.mu.Unlock()
	if hang != nil {
		<-hang
	}
	st.Bsize, st.Frsize = 1<<20, 4096
	st.Blocks, st.Bfree, st.Bavail = 100, 40, 30
	st.Files, st.Ffree = 1000, 900
	return err
}

func (d *disks) times(path string) (n int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.asked {
		if p == path {
			n++
		}
	}
	return n
}

func claims(list []usage.Stats) (names []string) {
	for _, s := range list {
		names = append(names, s.Namespace+"/"+s.Claim)
	}
	return names
}

func within(t *testing.T, d *disks, volumes func() []volume.Instance, test func(t *testing.T, r *usage.StatsReader)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		for path := range d.hang {
			d.hang[path] = make(chan struct{})
		}
		r := usage.NewStatsReader(usage.StatsConfig{Volumes: volumes, Statfs: d.statfs})
		test(t, r)
		for _, hang := range d.hang {
			close(hang)
		}
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestEveryMountedClaimIsReportedOnce(t *testing.T) {
	block := claim("ns", "block", "/block")
	mode := v1.PersistentVolumeBlock
	block.Spec.Persistent.Spec.VolumeMode = &mode
	plain := volume.Instance{Spec: volume.Spec{Volume: &v1.Volume{Name: "v"}}, Mounted: volume.Mounted{Path: "/plain"}}
	placed := claim("ns", "placed", "")
	placed.Dir = "/placed"
	d := &disks{fail: map[string]error{"/broken": unix.EIO}}
	volumes := []volume.Instance{claim("ns", "b", "/b"), plain, claim("ns", "a", "/a"), block, claim("ns", "a", "/a"), claim("other", "a", "/c"), claim("ns", "broken", "/broken"), placed}
	within(t, d, func() []volume.Instance { return volumes }, func(t *testing.T, r *usage.StatsReader) {
		got := r.Stats()
		if want := []string{"ns/a", "ns/b", "ns/placed", "other/a"}; !slices.Equal(claims(got), want) {
			t.Errorf("got %v, want %v", claims(got), want)
		}
		want := usage.Stats{
			Namespace: "ns", Claim: "a", Capacity: 409600, Available: 122880, Used: 245760, Inodes: 1000, InodesFree: 900, InodesUsed: 100,
		}
		if len(got) > 0 && got[0] != want {
			t.Errorf("got %+v, want %+v", got[0], want)
		}
	})
}

func TestHowLongAnswersTookIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slow = 300 * time.Millisecond
		var told []time.Duration
		r := usage.NewStatsReader(usage.StatsConfig{
			Volumes: func() []volume.Instance {
				return []volume.Instance{claim("ns", "a", "/a"), claim("ns", "broken", "/broken")}
			},
			Statfs: func(path string, _ *unix.Statfs_t) error {
				if path == "/broken" {
					return unix.EIO
				}
				time.Sleep(slow)
				return nil
			},
			Took: func(d time.Duration) { told = append(told, d) },
		})
		r.Stats()
		r.Stats() // which asks nobody
		if !slices.Equal(told, []time.Duration{slow}) {
			t.Errorf("told %v", told)
		}
	})
}

func TestAnswersAreGoodForAWhile(t *testing.T) {
	d := &disks{}
	within(t, d, func() []volume.Instance { return []volume.Instance{claim("ns", "a", "/a")} }, func(t *testing.T, r *usage.StatsReader) {
		r.Stats()
		time.Sleep(9 * time.Second)
		r.Stats()
		if n := d.times("/a"); n != 1 {
			t.Errorf("asked %d times", n)
		}
		time.Sleep(2 * time.Second)
		r.Stats()
		if n := d.times("/a"); n != 2 {
			t.Errorf("asked %d times", n)
		}
	})
}

func TestWhatCouldNotBeAnsweredIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		var failure error
		a := usage.NewAnswers(time.Hour, func(string) (int, error) { asked++; return asked, failure })
		for _, step := range []struct {
			after time.Duration
			err   error
			want  int
		}{{0, unix.EIO, 1}, {9 * time.Second, nil, 1}, {time.Second, unix.EIO, 2}, {10 * time.Second, nil, 3}, {time.Hour - time.Second, nil, 3}, {time.Second, unix.EIO, 4}, {time.Minute, nil, 4}} {
			time.Sleep(step.after)
			failure = step.err
			if a.Get(t.Context(), []string{"a"}, time.Second, time.Second); asked != step.want {
				t.Errorf("after %s: asked %d times, want %d", step.after, asked, step.want)
			}
		}
		if got := a.Get(t.Context(), []string{"a"}, 0, 0)[0]; got.Value != 3 || got.Err != unix.EIO {
			t.Errorf("the answer is %+v", got)
		}
		if err := a.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestAHangingFileSystemIsLeftOutAndAskedOnce(t *testing.T) {
	d := &disks{hang: map[string]chan struct{}{"/hung": nil}}
	volumes := []volume.Instance{claim("ns", "a", "/hung"), claim("ns", "b", "/fine"), claim("ns", "c", "/fine too")}
	within(t, d, func() []volume.Instance { return volumes }, func(t *testing.T, r *usage.StatsReader) {
		for i := range 100 {
			began := time.Now()
			if got, want := claims(r.Stats()), []string{"ns/b", "ns/c"}; !slices.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			// Waited for once.
			if took := time.Since(began); i == 0 && took > time.Second || i > 0 && took > 0 {
				t.Errorf("look %d took %v", i, took)
			}
			time.Sleep(30 * time.Second)
		}
		if n := d.times("/hung"); n != 1 {
			t.Errorf("the hanging one was asked %d times", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Close(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.HasSuffix(err.Error(), ": /hung") {
			t.Errorf("got %v", err)
		}
	})
}

func TestAFileSystemThatAnswersAgainIsBack(t *testing.T) {
	d := &disks{hang: map[string]chan struct{}{"/hung": nil}}
	within(t, d, func() []volume.Instance { return []volume.Instance{claim("ns", "a", "/hung")} }, func(t *testing.T, r *usage.StatsReader) {
		if got := r.Stats(); len(got) > 0 {
			t.Fatalf("got %v", claims(got))
		}
		close(d.hang["/hung"])
		d.mu.Lock()
		delete(d.hang, "/hung")
		d.mu.Unlock()
		synctest.Wait()
		if got := r.Stats(); len(got) != 1 {
			t.Errorf("got %v", claims(got))
		}
	})
}

func TestAfterCloseNothingIsAsked(t *testing.T) {
	d := &disks{}
	within(t, d, func() []volume.Instance { return []volume.Instance{claim("ns", "a", "/a")} }, func(t *testing.T, r *usage.StatsReader) {
		if err := r.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := r.Stats(); len(got) > 0 || d.times("/a") > 0 {
			t.Errorf("got %v", claims(got))
		}
	})
}

func TestARealFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m,nr_inodes=100"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	if err := os.WriteFile(dir+"/f", make([]byte, 256<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	r := usage.NewStatsReader(usage.StatsConfig{Volumes: func() []volume.Instance { return []volume.Instance{claim("ns", "a", dir)} }})
	defer r.Close(t.Context())
	want := usage.Stats{Namespace: "ns", Claim: "a", Capacity: 1 << 20, Available: 768 << 10, Used: 256 << 10, Inodes: 100, InodesFree: 98, InodesUsed: 2}
	if got := r.Stats(); len(got) != 1 || got[0] != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestFileSystemsNow: no older result is reused if none may be, and a file system that hangs is waited for once.
func TestFileSystemsNow(t *testing.T) {
	d := &disks{hang: map[string]chan struct{}{"/hung": nil}}
	within(t, d, func() []volume.Instance { return nil }, func(t *testing.T, r *usage.StatsReader) {
		paths := []string{"/a", "/hung", "/a"}
		for n, took := range []time.Duration{time.Second, 0, 0} {
			began := time.Now()
			got := r.FileSystems(t.Context(), paths, 0)
			if got[0].Err != nil || !got[0].At.Equal(began) || got[0] != got[2] || got[1].Err == nil {
				t.Errorf("call %d: %+v", n, got)
			}
			if time.Since(began) != took || d.times("/a") != n+1 || d.times("/hung") != 1 {
				t.Errorf("call %d took %s, asked %d and %d times", n, time.Since(began), d.times("/a"), d.times("/hung"))
			}
			time.Sleep(time.Millisecond)
		}
		if r.FileSystems(t.Context(), paths[:1], time.Minute); d.times("/a") != 3 {
			t.Error("a result that is recent enough is read again")
		}
	})
}

func TestSpaceOf(t *testing.T) {
	u := func(n uint64) *uint64 { return &n }
	for name, tc := range map[string]struct {
		st   unix.Statfs_t
		want usage.Space
	}{
		"usual": {unix.Statfs_t{Frsize: 4096, Bsize: 1 << 20, Blocks: 100, Bfree: 40, Bavail: 30, Files: 1000, Ffree: 900},
			usage.Space{Capacity: u(409600), Available: u(122880), Inodes: u(1000), InodesFree: u(900)}},
		"without a fragment size": {unix.Statfs_t{Bsize: 1024, Blocks: 100, Bfree: 40, Bavail: 30},
			usage.Space{Capacity: u(102400), Available: u(30720)}},
		"full": {unix.Statfs_t{Frsize: 4096, Blocks: 100, Files: 1000},
			usage.Space{Capacity: u(409600), Available: u(0), Inodes: u(1000), InodesFree: u(0)}},
		"no blocks":     {unix.Statfs_t{Frsize: 4096, Files: 10, Ffree: 5}, usage.Space{Inodes: u(10), InodesFree: u(5)}},
		"no block size": {unix.Statfs_t{Blocks: 100, Bavail: 30}, usage.Space{}},
		"no inodes, but free ones": {unix.Statfs_t{Frsize: 4096, Blocks: 100, Bavail: 100, Ffree: 5},
			usage.Space{Capacity: u(409600), Available: u(409600)}},
		"less than nothing is available": {unix.Statfs_t{Frsize: 4096, Blocks: 100, Bavail: ^uint64(4)},
			usage.Space{Capacity: u(409600), Available: u(0)}},
		"more is free than there is": {unix.Statfs_t{Frsize: 1, Blocks: 100, Bavail: 200, Files: 10, Ffree: 20},
			usage.Space{Capacity: u(100), Available: u(100), Inodes: u(10), InodesFree: u(10)}},
		"more than can be counted": {unix.Statfs_t{Frsize: 1 << 20, Blocks: 1 << 62, Bavail: 1},
			usage.Space{Capacity: u(1<<64 - 1), Available: u(1 << 20)}},
		"negative sizes": {unix.Statfs_t{Frsize: -1, Bsize: -1, Blocks: 100, Bavail: 30}, usage.Space{}},
	} {
		if diff := cmp.Diff(tc.want, usage.SpaceOf(&tc.st)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestFileSystemsWithoutSizes: there are real file systems without blocks or inodes.
func TestFileSystemsWithoutSizes(t *testing.T) {
	unlimited := t.TempDir()
	if err := unix.Mount("tmpfs", unlimited, "tmpfs", 0, "size=1m,nr_inodes=0"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(unlimited, unix.MNT_DETACH) })
	r := usage.NewStatsReader(usage.StatsConfig{})
	defer r.Close(t.Context())
	got := r.FileSystems(t.Context(), []string{"/proc", unlimited}, 0)
	if s := usage.SpaceOf(&got[0].Value); got[0].Err != nil || s != (usage.Space{}) {
		t.Errorf("/proc: %+v, %v", s, got[0].Err)
	}
	if s := usage.SpaceOf(&got[1].Value); got[1].Err != nil || s.Capacity == nil || *s.Capacity != 1<<20 || s.Inodes != nil || s.InodesFree != nil {
		t.Errorf("a tmpfs without a limit of inodes: %+v, %v", s, got[1].Err)
	}
}

func TestARealFileSystemThatHangs(t *testing.T) {
	hung, fine := t.TempDir(), t.TempDir()
	server := mounttest.Mount(t, hung)
	r := usage.NewStatsReader(usage.StatsConfig{Volumes: func() []volume.Instance {
		return []volume.Instance{claim("ns", "hung", hung), claim("ns", "fine", fine)}
	}})
	server.Hang()
	for range 3 {
		if got, want := claims(r.Stats()), []string{"ns/fine"}; !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	server.Resume()
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
