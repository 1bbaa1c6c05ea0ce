package journal

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/lifecycle"
)

// sized is a recorder of so many bytes.
type sized int

func (sized) Comment(string)                             {}
func (sized) Record(lifecycle.Input, lifecycle.Decision) {}
func (n sized) Bytes() []byte                            { return bytes.Repeat([]byte{'x'}, int(n)) }

// full has a journal record as much as is kept of each pod.
func full(limit int) func(*Journal) {
	return func(j *Journal) {
		j.cfg.Limit, j.store.limit = limit, int64(limit)
		j.newRecorder = func(limit int) recorder { return sized(limit) }
	}
}

func onDisk(t *testing.T, dir string) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*"+extension))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// TestEverythingIsOnDiskAfterAnOrderlyStop: however many pods there are and however
// much was decided about each.
func TestEverythingIsOnDiskAfterAnOrderlyStop(t *testing.T) {
	const pods, limit = 130, 512 << 10 // more than leastTotal
	dir := rootDir(t)
	for life := range 2 {
		j, stop := begin(t, dir, full(limit))
		if got := onDisk(t, filepath.Join(dir, "previous")); got != life*pods {
			t.Errorf("life %d begins with %d earlier files", life, got)
		}
		for i := range pods {
			decide(j, types.UID(fmt.Sprint("u", i)))
		}
		if err := j.Save(); err != nil {
			t.Error(err)
		}
		stop()
		if got := onDisk(t, dir); got != pods {
			t.Errorf("%d of %d pods' files are on disk after life %d", got, pods, life)
		}
		if bound := j.store.bound(pods); j.store.total > bound {
			t.Errorf("%d bytes are on disk, more than %d", j.store.total, bound)
		}
	}
}

// TestTheOldestGoFirst: what the previous agent left before everything else.
func TestTheOldestGoFirst(t *testing.T) {
	dir := rootDir(t)
	j, stop := begin(t, dir, full(1000))
	decide(j, "u7")
	decide(j, "u8")
	text, _ := j.Text("u7")
	stop()
	later := time.Now().Add(time.Hour)
	for _, path := range []string{"u7.txtar", "u8.txtar"} {
		if err := os.Chtimes(filepath.Join(dir, path), later, later); err != nil {
			t.Fatal(err)
		}
	}
	size := int64(len(text))
	j, _ = begin(t, dir, full(1000), func(j *Journal) { j.store.least, j.store.limit = 8*size, 0 })
	for i := range 9 {
		uid := types.UID(fmt.Sprint("u", i))
		decide(j, uid)
		if err := j.record(uid).save(); err != nil {
			t.Fatal(err)
		}
		if i == 6 && (onDisk(t, dir) != 7 || onDisk(t, filepath.Join(dir, "previous")) > 0) {
			t.Error("what the previous agent left doesn't go first")
		}
		if j.store.total > 8*size {
			t.Errorf("%d bytes are on disk, more than %d", j.store.total, 8*size)
		}
	}
	if exists(t, dir, "u0.txtar") || exists(t, dir, "u1.txtar") || onDisk(t, dir) != 7 {
		t.Error("the oldest are still there, or more than they are gone")
	}
	const want = "the journal of 2 of 9 pods is not on disk: all together are too large"
	if err := j.Save(); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	j.Close("u0")
	j.Close("u1")
	j.removeClosed()
	if err := j.Save(); err != nil {
		t.Error(err)
	}
}

// TestOneFileMayTakeAllTheRoom: it doesn't remove itself.
func TestOneFileMayTakeAllTheRoom(t *testing.T) {
	dir := rootDir(t)
	j, _ := begin(t, dir, full(1000), func(j *Journal) { j.store.least, j.store.limit = 100, 0 })
	for range 2 {
		decide(j, "u1")
		if err := j.record("u1").save(); err != nil || !exists(t, dir, "u1.txtar") {
			t.Errorf("it is gone: %v", err)
		}
	}
}
