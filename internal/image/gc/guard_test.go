package gc

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var puller = User{Pod: "default/puller", How: "being pulled"}

func hold(t testing.TB, g *Guard, name string) *Hold {
	t.Helper()
	h, err := g.Acquire(t.Context(), name, puller)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// What comes into use between decision and removal stays, by whatever way.
func TestCameIntoUseMeanwhile(t *testing.T) {
	for way, meanwhile := range map[string]func(*testing.T, *world, *Collector){
		"a pod is wanted":      func(_ *testing.T, w *world, _ *Collector) { w.use("a:1") },
		"a container was made": func(_ *testing.T, w *world, _ *Collector) { w.use("a") },
		"it was pinned":        func(_ *testing.T, w *world, _ *Collector) { w.images["a"].Pinned = true },
		"a pull under a new name": func(t *testing.T, w *world, c *Collector) {
			hold(t, c.cfg.Guard, "new:1")
			w.images["a"].RepoTags = []string{"new:1"}
		},
		"users are unknown": func(_ *testing.T, w *world, _ *Collector) { w.fail("uses", errors.New("lost")) },
	} {
		t.Run(way, func(t *testing.T) {
			w := newWorld()
			c := w.collector(t, byDefault)
			w.add("a", mib, "a:1")
			w.looked = func(string) { meanwhile(t, w, c) }
			r, err := c.Prune(t.Context(), false)
			if err != nil || len(r.Removed) > 0 || len(r.Retained)+len(r.Failed) != 1 {
				t.Errorf("%+v, %v", r, err)
			}
			if removed, _ := w.taken(); len(removed) > 0 {
				t.Errorf("removed %v", removed)
			}
		})
	}
}

func TestHeldImagesStay(t *testing.T) {
	w := newWorld()
	c := w.collector(t, byDefault)
	w.add(digest, mib, "docker.io/library/a:latest")
	for _, name := range []string{"a", "docker.io/library/a", digest, "b"} {
		h := hold(t, c.cfg.Guard, name)
		if name == "b" { // turns out to be the same one
			if gone, err := h.Found(t.Context(), digest[len("sha256:"):]); gone || err != nil {
				t.Fatal(gone, err)
			}
		}
		r, err := c.Prune(t.Context(), false)
		if err != nil || len(r.Removed) > 0 || len(r.Retained) != 1 || r.Retained[0].Why != "in use by pod default/puller (being pulled)" {
			t.Errorf("held as %s: %+v, %v", name, r, err)
		}
		if _, _, err := c.Remove(t.Context(), "a"); err == nil {
			t.Errorf("held as %s: removed for a person", name)
		}
		h.Release()
		h.Release()
	}
	if r, err := c.Prune(t.Context(), false); err != nil || len(r.Removed) != 1 {
		t.Errorf("not held: %+v, %v", r, err)
	}
}

func TestHoldsWaitForRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.collector(t, byDefault)
		g := c.cfg.Guard
		w.add("a", mib, "a:1")
		other := hold(t, g, "b:1") // is being pulled, and turns out to be a
		begun, goOn := make(chan struct{}), make(chan struct{})
		w.removing = func(string) { close(begun); <-goOn }
		var wg sync.WaitGroup
		wg.Go(func() {
			if r, err := c.Prune(t.Context(), false); err != nil || len(r.Removed) != 1 {
				t.Errorf("%+v, %v", r, err)
			}
		})
		<-begun
		free := hold(t, g, "c:1") // another image: at once
		if gone, err := free.Found(t.Context(), "c"); gone || err != nil {
			t.Error(gone, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := g.Acquire(ctx, "a:1", puller); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("held while it is being removed: %v", err)
		}
		if _, err := other.Found(ctx, "a"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("found while it is being removed: %v", err)
		}
		wg.Go(func() { hold(t, g, "a:1").Release() })
		wg.Go(func() {
			if gone, err := other.Found(t.Context(), "a"); !gone || err != nil {
				t.Errorf("gone %v, error %v; it was removed since the hold began", gone, err)
			}
			if gone, err := other.Found(t.Context(), "a"); gone || err != nil {
				t.Errorf("gone %v, error %v; it was pulled again", gone, err)
			}
		})
		synctest.Wait()
		close(goOn)
		wg.Wait()
		other.Release()
		free.Release()
		if len(g.holds)+len(g.removing)+len(g.removed) > 0 {
			t.Errorf("left behind: %+v", g)
		}
	})
}

// Pods pull and make containers, others end, and images are removed all the time: what was
// found is there until its hold ends.
func TestNobodyLosesAnImage(t *testing.T) {
	w := newWorld()
	c := w.collector(t, Policy{High: 100, MaxAge: 1})
	g := c.cfg.Guard
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := c.Prune(t.Context(), false); err != nil {
				t.Error(err)
				return
			}
		}
	})
	// On a busy host the collector may get its first turn late: the pulls go on until then.
	collected := func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.removed) > 0
	}
	var pulls sync.WaitGroup
	for range 4 {
		pulls.Go(func() {
			for i := 0; i < 200 || i < 1_000_000 && !collected(); i++ {
				// Two names for each of three images.
				n := rand.IntN(3)
				id, name := fmt.Sprint("id", n), fmt.Sprintf("name%d-%d:1", n, rand.IntN(2))
				h := hold(t, g, name)
				for gone := true; gone; {
					w.ensure(id, name)
					var err error
					if gone, err = h.Found(t.Context(), id); err != nil {
						t.Error(err)
						return
					}
				}
				w.mu.Lock()
				_, there := w.images[id]
				w.mu.Unlock()
				if !there {
					t.Errorf("image %s was removed while somebody held it", id)
				}
				h.Release()
			}
		})
	}
	pulls.Wait()
	close(stop)
	wg.Wait()
	if removed, _ := w.taken(); len(removed) == 0 {
		t.Error("nothing was ever removed")
	}
}

// ensure is a pull.
func (w *world) ensure(id, name string) {
	w.mu.Lock()
	i := w.images[id]
	w.mu.Unlock()
	if i == nil {
		w.add(id, 1, name)
	}
}
