package pull

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/pod"
)

var key = backoffKey{Image: "a:1", Login: "x"}

func TestTermsDoubleUpToTheLongest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newBackoff()
		var terms []time.Duration
		for n := range 8 {
			until := l.Failed(key, pod.Failure{Reason: "ErrImagePull", Message: "no"})
			terms = append(terms, time.Until(until)/time.Second)
			s, ok := l.Get(key)
			if !ok || s.Failures != n+1 || s.Until != until || s.Last.Message != "no" {
				t.Fatalf("got %+v, %v", s, ok)
			}
			time.Sleep(time.Until(until))
		}
		if want := []time.Duration{10, 20, 40, 80, 160, 300, 300, 300}; !slices.Equal(terms, want) {
			t.Errorf("got %v, want %v", terms, want)
		}
		l.Succeeded(key)
		if _, ok := l.Get(key); ok {
			t.Error("a success was not taken in")
		}
		if until := l.Failed(key, pod.Failure{}); time.Until(until) != firstDelay {
			t.Errorf("after a success: %s", time.Until(until))
		}
	})
}

func TestLongQuietBeginsAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newBackoff()
		l.Failed(key, pod.Failure{})
		time.Sleep(2 * maxDelay)
		if until := l.Failed(key, pod.Failure{}); time.Until(until) != 2*firstDelay {
			t.Errorf("after exactly twice the longest term: %s", time.Until(until))
		}
		time.Sleep(2*maxDelay + 1)
		if _, ok := l.Get(key); ok {
			t.Error("an old failure still counts")
		}
		if until := l.Failed(backoffKey{Image: "b:1"}, pod.Failure{}); time.Until(until) != firstDelay || len(l.entries) != 1 {
			t.Errorf("%s, %d entries", time.Until(until), len(l.entries))
		}
	})
}

func TestForget(t *testing.T) {
	l := newBackoff()
	for _, k := range []backoffKey{{"a", "1"}, {"a", "2"}, {"b", "1"}} {
		l.Failed(k, pod.Failure{})
	}
	l.Forget("a")
	if _, ok := l.Get(backoffKey{"a", "2"}); ok || len(l.entries) != 1 {
		t.Errorf("%d left, want b", len(l.entries))
	}
	l.Clear()
	if len(l.entries) != 0 {
		t.Error("something is left")
	}
}

// TestDelaysEndWithRoom: an ended delay counts for the next one. Delays after other failures go on.
func TestDelaysEndWithRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, other := newBackoff(), backoffKey{Image: "other"}
		l.Failed(key, pod.Failure{Disk: true})
		l.Failed(other, pod.Failure{})
		time.Sleep(time.Second)
		l.DiskFreed()
		if s, ok := l.Get(key); !ok || time.Now().Before(s.Until) {
			t.Errorf("it still waits: %+v", s)
		}
		if s, ok := l.Get(other); !ok || time.Until(s.Until) != firstDelay-time.Second {
			t.Errorf("another failure's delay changed: %+v", s)
		}
		if next := l.Failed(key, pod.Failure{}); time.Until(next) != 2*firstDelay {
			t.Errorf("the next delay is %s", time.Until(next))
		}
	})
}

// TestAnyHistory: the next try is always due within the longest term, what fails before
// it is due changes nothing, and only a long quiet makes a term shorter than the one before.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOf(rapid.IntRange(0, 900)).Draw(rt, "waits")
		synctest.Test(t, func(t *testing.T) {
			l := newBackoff()
			var due, failed time.Time
			var term time.Duration
			for _, s := range steps {
				time.Sleep(time.Duration(s) * time.Second)
				early, fresh := time.Now().Before(due), time.Since(failed) > 2*maxDelay
				got := l.Failed(key, pod.Failure{})
				switch {
				case early && got != due:
					t.Fatalf("a late failure moved the next try from %s to %s", due, got)
				case early:
					continue
				case fresh && time.Until(got) != firstDelay:
					t.Fatalf("%s after a long quiet", time.Until(got))
				case !fresh && time.Until(got) != min(2*term, maxDelay):
					t.Fatalf("%s after %s", time.Until(got), term)
				}
				due, failed, term = got, time.Now(), time.Until(got)
			}
		})
	})
}
