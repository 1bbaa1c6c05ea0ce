package filewatch

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
)

// listener is a watcher of /etc/c in virtual time, and when it was armed and told.
type listener struct {
	events chan Event
	began  time.Time
	w      *Settled

	mu    sync.Mutex
	armed int
	told  []time.Duration
	// writes is the file that somebody writes.
	writes string
}

func anyName(string) bool { return true }

func listen(t *testing.T) *listener {
	l := &listener{events: make(chan Event), began: time.Now(), w: New(Every, logr.Discard()).NewSettled(nil, anyName, logr.Discard())}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go l.w.listen(ctx, l.events, l.arm, l.unfinished)
	go func() {
		for {
			select {
			case <-l.w.Changed():
				l.mu.Lock()
				l.told = append(l.told, time.Since(l.began))
				l.mu.Unlock()
			case <-ctx.Done():
				return
			}
		}
	}()
	synctest.Wait()
	return l
}

func (l *listener) arm() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.armed++
}

func (l *listener) unfinished() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writes
}

func (l *listener) write(file string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes = file
}

func (l *listener) seen() (armed int, told []time.Duration) {
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.armed, slices.Clone(l.told)
}

func (l *listener) expect(t *testing.T, when string, armed int, told ...time.Duration) {
	t.Helper()
	if a, d := l.seen(); a != armed || !slices.Equal(d, told) {
		t.Errorf("%s: armed %d times, told after %v; want %d and %v", when, a, d, armed, told)
	}
}

const ms = time.Millisecond

func TestChangesAreReportedWhenTheyHaveSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listen(t)
		l.expect(t, "at first", 1, 0)
		for range 10 {
			l.events <- Event{Dir: "/etc", Name: "c", Op: Writing}
			time.Sleep(100 * ms)
		}
		time.Sleep(10 * time.Second)
		l.expect(t, "written to for 900 ms", 2, 0, 1150*ms)
		time.Sleep(9 * time.Second)
		l.events <- Event{Dir: "/", Name: "etc", Op: Rescan}
		l.expect(t, "a name came", 3, 0, 1150*ms)
		time.Sleep(time.Second)
		l.expect(t, "and settled", 4, 0, 1150*ms, 20250*ms)
		l.events <- Event{Op: Rescan}
		time.Sleep(time.Second)
		l.expect(t, "events were lost", 6, 0, 1150*ms, 20250*ms, 21250*ms)
	})
}

func TestChangesWithoutEndAreReportedToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listen(t)
		for range 120 {
			l.events <- Event{Dir: "/etc", Name: "c", Op: Touched}
			time.Sleep(100 * ms)
		}
		l.expect(t, "12 s of changes", 3, 0, 5*time.Second, 10*time.Second)
	})
}

// The beginning of a file may pass for a whole one, so it isn't told before its writer is
// done, which need not cause an event that is heard of.
func TestWhatIsBeingWrittenIsNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := listen(t)
		l.write("/etc/c")
		for range 100 {
			l.events <- Event{Dir: "/etc", Name: "c", Op: Writing}
			time.Sleep(200 * ms)
		}
		time.Sleep(time.Hour)
		armed, told := l.seen()
		if len(told) != 1 || armed > 740 {
			t.Errorf("told after %v, looked %d times", told, armed)
		}
		l.write("")
		time.Sleep(settleAtMost)
		if armed, told = l.seen(); len(told) != 2 {
			t.Errorf("after it: told after %v", told)
		}
		time.Sleep(time.Hour)
		l.events <- Event{Dir: "/etc", Name: "c", Op: Writing}
		next := time.Since(l.began) + settle
		time.Sleep(time.Minute)
		l.expect(t, "the next change", armed+1, append(told, next)...)
	})
}
