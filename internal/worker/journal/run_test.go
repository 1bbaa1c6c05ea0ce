package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
	"github.com/deckhand-node/deckhand/internal/lifecycle/transcript"
)

// modified is when a pod's file was written last, by the bubble's clock.
func modified(t *testing.T, j *Journal, uid types.UID) time.Time {
	t.Helper()
	j.store.mu.Lock()
	defer j.store.mu.Unlock()
	return j.store.files[file{current, uid}].written
}

func TestChangesAreWrittenAfterACrash(t *testing.T) {
	dir := rootDir(t)
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		j, stop := crashed(t, dir)
		time.Sleep(time.Hour) // nothing happens, nothing is written
		synctest.Wait()
		decide(j, "u1")
		time.Sleep(soon)
		synctest.Wait()
		if got := modified(t, j, "u1").Sub(start); got != time.Hour+soon {
			t.Fatalf("the first news were written at %v", got)
		}
		// What comes now waits, and is written together.
		decide(j, "u2")
		time.Sleep(10 * time.Second)
		decide(j, "u3")
		time.Sleep(every - 10*time.Second - time.Nanosecond)
		synctest.Wait()
		if exists(t, dir, "u2.txtar") {
			t.Error("it was written too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		for _, uid := range []types.UID{"u2", "u3"} {
			if got := modified(t, j, uid).Sub(start); got != time.Hour+soon+every {
				t.Errorf("%s was written at %v", uid, got)
			}
		}
		if got := modified(t, j, "u1").Sub(start); got != time.Hour+soon {
			t.Error("a record without news was written again")
		}
		stop()
	})
}

func TestALookWithoutChangesIsNotWritten(t *testing.T) {
	dir := rootDir(t)
	synctest.Test(t, func(t *testing.T) {
		j, stop := crashed(t, dir)
		in := input("u1")
		r := j.Open("u1", "default/web")
		idle := lifecycle.Decision{}
		r.Decision(in, idle)
		time.Sleep(time.Hour)
		synctest.Wait()
		first := modified(t, j, "u1")
		for range 10 {
			in.Now = in.Now.Add(time.Minute)
			r.Decision(in, idle)
			time.Sleep(time.Minute)
		}
		synctest.Wait()
		if first.IsZero() || !modified(t, j, "u1").Equal(first) {
			t.Errorf("written at %v and %v", first, modified(t, j, "u1"))
		}
		stop()
	})
}

func TestNothingIsWrittenWithoutACrash(t *testing.T) {
	dir := rootDir(t)
	synctest.Test(t, func(t *testing.T) {
		j, stop := begin(t, dir)
		decide(j, "u1")
		time.Sleep(time.Hour)
		synctest.Wait()
		if exists(t, dir, "u1.txtar") {
			t.Error("it was written")
		}
		stop()
	})
}

func TestStopDuringAWait(t *testing.T) {
	dir := rootDir(t)
	synctest.Test(t, func(t *testing.T) {
		j, stop := crashed(t, dir)
		decide(j, "u1")
		synctest.Wait()
		stop()
		if !exists(t, dir, "u1.txtar") || exists(t, dir, marker) {
			t.Error("the stop wasn't orderly")
		}
	})
}

// counted counts how often the text of a record is made, which is how often its file is written.
type counted struct {
	recorder
	texts *atomic.Int64
}

func (c counted) Bytes() []byte {
	c.texts.Add(1)
	return c.recorder.Bytes()
}

// TestFullDiskIsntTriedForEachPod: as long as the disk refuses writes, only a few are tried in each turn, and the
// failure is logged once. Once there is room, everything is written without a further decision.
func TestFullDiskIsntTriedForEachPod(t *testing.T) {
	disk := t.TempDir()
	if err := unix.Mount("deckhand-test", disk, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	filler := filepath.Join(disk, "filler")
	synctest.Test(t, func(t *testing.T) {
		var texts, errs atomic.Int64
		j, stop := crashed(t, filepath.Join(disk, "journal"), func(j *Journal) {
			j.newRecorder = func(limit int) recorder { return counted{transcript.NewRecorder(limit), &texts} }
			j.cfg.Log = funcr.New(func(_, args string) { errs.Add(1) }, funcr.Options{})
		})
		errs.Store(0)
		if err := os.WriteFile(filler, make([]byte, 16<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
			t.Fatal(err)
		}
		const pods = 100
		for i := range pods {
			decide(j, types.UID(fmt.Sprint("u", i)))
		}
		texts.Store(0)
		time.Sleep(soon + 10*every)
		synctest.Wait()
		if n := texts.Load(); n == 0 || n > 11*writers || errs.Load() != 1 {
			t.Errorf("%d writes were tried in 11 turns, and %d errors logged", n, errs.Load())
		}
		decide(j, "u0")
		in := input("u0")
		in.Pod.Labels = map[string]string{"a": "b"}
		j.Open("u0", "default/web").Decision(in, lifecycle.Decide(in))
		time.Sleep(every)
		text, _ := j.Text("u0")
		remark := strings.Split(string(text), "\n")[1]
		if n := j.Unwritten(); n != pods+2 || !strings.HasPrefix(remark, "Not on disk: 3 decisions, ") || !strings.HasSuffix(remark, "no space left on device") {
			t.Errorf("%d decisions aren't on disk, and the journal begins with %q", n, remark)
		}
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
		time.Sleep(every)
		synctest.Wait()
		for i := range pods {
			if !exists(t, disk, "journal", fmt.Sprintf("u%d.txtar", i)) {
				t.Errorf("the record of pod %d isn't written", i)
			}
		}
		if text, _ := j.Text("u0"); j.Unwritten() != 0 || strings.Contains(string(text), "Not on disk") {
			t.Errorf("%d decisions still aren't on disk:\n%s", j.Unwritten(), text)
		}
		stop()
	})
}

func TestSaveReportsHowMuchIsMissing(t *testing.T) {
	j, _ := begin(t, rootDir(t))
	decide(j, "u1")
	decide(j, "../u2")
	err := j.Save()
	const want = `the journal of 1 of 2 pods is not on disk: UID "../u2" can't be part of a path`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// TestConcurrently is for the race detector.
func TestConcurrently(t *testing.T) {
	j, stop := crashed(t, rootDir(t))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			uid := types.UID(fmt.Sprint("u", i))
			for range 20 {
				decide(j, uid)
				if err := j.record(uid).save(); err != nil {
					t.Error(err)
				}
				if _, ok := j.Text(uid); !ok {
					t.Error("no text")
				}
				j.Previous(uid)
				j.Close(uid)
			}
		})
		wg.Go(func() {
			for range 10 {
				if err := j.Save(); err != nil {
					t.Error(err)
				}
				j.Sweep(func(types.UID) bool { return false })
			}
		})
	}
	wg.Wait()
	stop()
	if left, err := filepath.Glob(filepath.Join(j.cfg.Dir, "*.txtar")); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if len(j.store.files) > 0 || j.store.total != 0 {
		t.Errorf("the books don't balance: %v, %d", j.store.files, j.store.total)
	}
}

// BenchmarkSave writes the records of 2,000 pods, as when the agent stops.
func BenchmarkSave(b *testing.B) {
	dir, err := os.MkdirTemp("", "journal")
	if err != nil {
		b.Fatal(err)
	}
	defer os.RemoveAll(dir)
	j := New(Config{Dir: filepath.Join(dir, "journal")})
	if err := j.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	for i := range 2000 {
		uid := types.UID(fmt.Sprint("u", i))
		in := input(uid)
		r := j.Open(uid, "default/web")
		for range 30 {
			d := lifecycle.Decide(in)
			r.Decision(in, d)
			in.Now, in.Memory = in.Now.Add(time.Second), d.Memory
		}
	}
	for b.Loop() {
		for _, r := range j.all() {
			r.markUnsaved()
		}
		if err := j.Save(); err != nil {
			b.Fatal(err)
		}
	}
}
