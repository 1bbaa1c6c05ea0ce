package gc

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
)

// times reports each image how long ago it was detected and used.
func times(t *testing.T, c *Collector) map[string][2]time.Duration {
	t.Helper()
	images, err := c.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][2]time.Duration{}
	for _, i := range images {
		used := time.Duration(-1)
		if !i.Used.IsZero() {
			used = time.Since(i.Used)
		}
		out[i.ID] = [2]time.Duration{time.Since(i.Detected), used}
	}
	return out
}

func TestAgesSurviveRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.collector(t, Policy{High: 100, MaxAge: 10 * time.Hour})
		w.add("never", mib)
		w.add("once", mib)
		w.add("always", mib)
		w.use("once", "always")
		stop := start(t, c)
		time.Sleep(2*time.Hour + time.Minute)
		w.use("always")
		time.Sleep(2 * time.Hour)
		stop()
		time.Sleep(time.Hour)
		c = New(c.cfg) // another agent
		w.add("new", mib)
		want := map[string][2]time.Duration{
			"never": {5*time.Hour + time.Minute, -1}, "once": {5*time.Hour + time.Minute, 3*time.Hour + time.Minute},
			"always": {5*time.Hour + time.Minute, 0}, "new": {0, -1},
		}
		if diff := cmp.Diff(want, times(t, c)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		stop = start(t, c)
		time.Sleep(5 * time.Hour)
		synctest.Wait()
		stop()
		if removed, _ := w.taken(); !slices.Equal(removed, []string{"never"}) {
			t.Errorf("removed %v, want what nobody used for 10 hours, half of them before the restart", removed)
		}
	})
}

// TestNothingGoesForItsAgeAtOnce: pods may come a little later than the agent starts, however long the machine was off (Kubernetes' node
// suite, "should not GC unused images prematurely").
func TestNothingGoesForItsAgeAtOnce(t *testing.T) {
	for maxAge, after := range map[time.Duration]time.Duration{time.Minute: time.Minute, 7 * 24 * time.Hour: settling} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld()
			c := w.collector(t, Policy{High: 100})
			w.add("a", mib)
			stop := start(t, c)
			synctest.Wait()
			stop()
			time.Sleep(30 * 24 * time.Hour)
			next := c.cfg
			next.Policy.MaxAge = maxAge
			c = New(next)
			stop = start(t, c)
			time.Sleep(after - time.Second)
			c.Wake()
			synctest.Wait()
			if removed, _ := w.taken(); len(removed) > 0 {
				t.Errorf("maximum age %s: %v removed too early", maxAge, removed)
			}
			time.Sleep(2 * Period)
			synctest.Wait()
			stop()
			if removed, _ := w.taken(); !slices.Equal(removed, []string{"a"}) {
				t.Errorf("maximum age %s: removed %v", maxAge, removed)
			}
		})
	}
}

// An image that is found present for a pod counts as used, though the pod is gone by the next look.
func TestShortUseCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.collector(t, byDefault)
		w.add("a", mib, "a:1")
		times(t, c)
		time.Sleep(time.Minute)
		h := hold(t, c.cfg.Guard, "a:1")
		if _, err := h.Found(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		h.Release()
		time.Sleep(time.Minute)
		for _, c := range []*Collector{c, New(c.cfg)} {
			if got := times(t, c)["a"]; got != [2]time.Duration{2 * time.Minute, time.Minute} {
				t.Errorf("detected and used %v ago", got)
			}
		}
	})
}

// Times that a clock recorded which was set back since become now: the image isn't kept until the clock is there again.
func TestRecordsOfTheFuture(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	future := now.Add(time.Hour)
	r := &records{byID: map[string]record{"a": {Detected: future, Used: future}}}
	r.see(now, []sighting{{id: "a"}})
	r.see(now.Add(time.Minute), []sighting{{id: "a"}})
	if got := r.byID["a"]; !got.Detected.Equal(now) || !got.Used.Equal(now) || !r.changed {
		t.Errorf("detected %v, used %v", got.Detected, got.Used)
	}
}

func TestRecordsAreWrittenRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.collector(t, byDefault)
		w.add("a", mib)
		w.add("b", mib)
		w.use("a")
		writes := 0
		var last os.FileInfo
		look := func() {
			times(t, c)
			if now, err := os.Stat(c.cfg.Records); err != nil {
				t.Fatal(err)
			} else if last == nil || !os.SameFile(last, now) {
				last, writes = now, writes+1
			}
		}
		for range 36 {
			look()
			time.Sleep(Period)
		}
		if writes != 3 { // at first, then every hour
			t.Errorf("%d writes in 3 hours in which nothing changed", writes)
		}
		w.use()
		look()
		look()
		if writes != 4 {
			t.Errorf("%d writes with one after the end of a use", writes)
		}
		if mode := last.Mode(); mode != 0o600 {
			t.Errorf("mode %v", mode)
		}
		if dir, err := os.Stat(filepath.Dir(c.cfg.Records)); err != nil || dir.Mode().Perm() != 0o700 {
			t.Errorf("directory %v, %v", dir.Mode(), err)
		}
	})
}

func TestDamagedRecordsCountAsNone(t *testing.T) {
	w := newWorld()
	c := w.collector(t, byDefault)
	w.add("a", mib)
	w.use("a")
	times(t, c)
	good, err := os.ReadFile(c.cfg.Records)
	if err != nil {
		t.Fatal(err)
	}
	for n := range good {
		for _, text := range [][]byte{good[:n], append(bytes.Clone(good[:n]), append([]byte{good[n] ^ 1}, good[n+1:]...)...)} {
			if err := os.WriteFile(c.cfg.Records, text, 0o600); err != nil {
				t.Fatal(err)
			}
			r := records{path: c.cfg.Records}
			err := r.load(time.Now())
			if errors.Is(err, checkpoint.ErrNewer) || err == nil && len(r.byID) == 1 {
				continue // the version's digit, or the case of a key's letter
			}
			if err == nil || len(r.byID) > 0 || !strings.Contains(err.Error(), c.cfg.Records+".corrupt") {
				t.Fatalf("read %v, %v from %s", r.byID, err, text)
			}
		}
	}
}

// What an earlier version wrote is read: who changes it makes the next format.
func TestOlderFormats(t *testing.T) {
	path := filepath.Join(t.TempDir(), "images.json")
	const format1 = `{"version":1,"sum":"sha256:7c51515acd93bd1c118f81e44765802e53c035c66c6475eb392826918d8828f2","data":{"a":{"detected":"2026-01-02T03:04:05Z","used":"2026-01-02T03:05:05Z"}}}`
	if err := os.WriteFile(path, []byte(format1), 0o600); err != nil {
		t.Fatal(err)
	}
	detected := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	r := records{path: path}
	err := r.load(time.Now())
	got := r.byID["a"]
	if err != nil || !got.Detected.Equal(detected) || !got.Used.Equal(detected.Add(time.Minute)) {
		t.Errorf("%v, %v", r.byID, err)
	}
	if got.Detected == got.Detected.Round(0) || got.Used == got.Used.Round(0) {
		t.Errorf("%v has no monotonic reading: a step of the clock would change the image's age", got)
	}
}

func TestNewerRecordsAreLeftAlone(t *testing.T) {
	w := newWorld()
	c := w.collector(t, byDefault)
	text := []byte(`{"version":2,"images":"otherwise"}`)
	if err := errors.Join(os.MkdirAll(filepath.Dir(c.cfg.Records), 0o700), os.WriteFile(c.cfg.Records, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	w.add("a", mib)
	w.use("a")
	times(t, c)
	start(t, c)()
	if now, err := os.ReadFile(c.cfg.Records); err != nil || !bytes.Equal(now, text) {
		t.Errorf("now %s, %v", now, err)
	}
}

func TestRecordsThatCantBeWrittenAreTriedAgain(t *testing.T) {
	w := newWorld()
	c := w.collector(t, byDefault)
	dir := filepath.Dir(c.cfg.Records)
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // in the way
		t.Fatal(err)
	}
	w.add("a", mib)
	times(t, c)
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	times(t, c)
	if _, err := os.Stat(c.cfg.Records); err != nil {
		t.Error(err)
	}
}
