package journal

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
)

// started is a journal that was started but doesn't run, as of an agent that is
// killed or very busy.
func started(t *testing.T, dir string) *Journal {
	t.Helper()
	j := New(Config{Dir: dir, Version: "v1", Log: logr.Discard()})
	if err := j.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return j
}

func saved(t *testing.T, j *Journal, uid types.UID) {
	t.Helper()
	decide(j, uid)
	if err := j.record(uid).save(); err != nil || !exists(t, j.cfg.Dir, string(uid)+extension) {
		t.Fatalf("%s isn't on disk: %v", uid, err)
	}
}

// TestCloseWaitsForNoDisk: it is called by the loop that starts and ends all pods.
func TestCloseWaitsForNoDisk(t *testing.T) {
	j := started(t, rootDir(t))
	saved(t, j, "u1")
	r := j.Open("u1", "default/web")
	// A disk that doesn't answer: the record is being written, and another file removed.
	r.saving.Lock()
	j.store.mu.Lock()
	done := make(chan struct{})
	go func() {
		j.Close("u1")
		j.Open("u1", "default/web")
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Error("Close waits")
	}
	j.store.mu.Unlock()
	r.saving.Unlock()
	<-done
}

// TestClosedWhileItIsWritten: then nothing is left of it either.
func TestClosedWhileItIsWritten(t *testing.T) {
	dir := rootDir(t)
	j, stop := begin(t, dir)
	decide(j, "u1")
	j.store.mu.Lock() // the file is filled, but gets no name
	written := make(chan error)
	go func() { written <- j.Open("u1", "default/web").save() }()
	begun := func() bool {
		list, err := filepath.Glob(filepath.Join(dir, ".u1.*"))
		return err == nil && len(list) == 1
	}
	for deadline := time.Now().Add(10 * time.Second); !begun(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Error("the file isn't begun")
			break
		}
	}
	j.Close("u1")
	j.store.mu.Unlock()
	if err := <-written; err != nil {
		t.Error(err)
	}
	stop()
	list, err := os.ReadDir(dir)
	if err != nil || len(list) != 2 { // previous and failed
		t.Errorf("left: %v, %v", list, err)
	}
}

// TestOpenedAgainBeforeItIsRemoved: a pod may come back under its UID at once.
func TestOpenedAgainBeforeItIsRemoved(t *testing.T) {
	dir := rootDir(t)
	j := started(t, dir)
	saved(t, j, "silent")
	saved(t, j, "busy")
	j.Close("silent")
	j.Close("busy")
	j.Open("silent", "default/web")
	saved(t, j, "busy")
	j.removeClosed()
	if exists(t, dir, "silent.txtar") || !exists(t, dir, "busy.txtar") {
		t.Error("the file of the pod that is gone is left, or that of the one that came back isn't")
	}
}

// TestClosedBeforeAKill: what couldn't be removed any more is with the next sweep.
func TestClosedBeforeAKill(t *testing.T) {
	dir := rootDir(t)
	j := started(t, dir)
	saved(t, j, "u1")
	j.Close("u1")
	next, _ := begin(t, dir)
	next.Sweep(func(types.UID) bool { return false })
	if exists(t, dir, "u1.txtar") || exists(t, dir, "previous", "u1.txtar") {
		t.Error("the journal of a pod that is gone stays")
	}
}

// TestFailuresAreWrittenFewAtATime: a core that fails on every pod doesn't have the
// disk written by all workers at once, nor do they wait for long.
func TestFailuresAreWrittenFewAtATime(t *testing.T) {
	dir := rootDir(t)
	synctest.Test(t, func(t *testing.T) {
		j := started(t, dir)
		for range cap(j.failures) {
			j.failures <- struct{}{} // one that is being written
		}
		begun := time.Now()
		where := j.Open("u1", "default/web").Failed(input("u1"), errors.New("x"))
		if took := time.Since(begun); took != failedWait || !strings.Contains(where, "only in memory") {
			t.Errorf("after %v: %s", took, where)
		}
		<-j.failures
		if where := j.Open("u1", "default/web").Failed(input("u1"), errors.New("x")); !exists(t, where) {
			t.Error(where)
		}
		if len(j.failures) != cap(j.failures)-1 {
			t.Error("its turn doesn't end")
		}
	})
}
