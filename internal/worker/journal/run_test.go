package journal

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
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

func TestSaveReportsHowMuchIsMissing(t *testing.T) {
	j, _ := begin(t, rootDir(t))
	decide(j, "u1")
	decide(j, "../u2")
	err := j.Save()
	const want = `the journal of 1 of 2 pods is not on disk: UID "../u2" can't be part of a path`
	if err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if err := j.SaveOne("none"); err != nil {
		t.Error(err)
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
				if err := j.SaveOne(uid); err != nil {
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
