package gc

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

var byDefault = Policy{High: 85, Low: 80, MinAge: 2 * time.Minute}

func TestLeastRecentlyUsedGoFirstAndOnlyAsManyAsTheDiskNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.collector(t, byDefault)
		defer start(t, c)()
		for _, id := range []string{"a", "b", "c"} { // used one after the other
			w.add(id, 100*mib, id+":1")
			w.use(id)
			c.Wake()
			time.Sleep(gap)
			synctest.Wait()
		}
		w.add("wanted", 100*mib, "docker.io/library/wanted:latest")
		w.add("running", 100*mib).RepoDigests = []string{"docker.io/x@" + digest}
		w.add("pinned", 100*mib).Pinned = true
		w.add("pause", mib, "registry.k8s.io/pause:3.10")
		w.use("wanted", "docker.io/x:tag@"+digest)
		time.Sleep(Period + time.Second)
		synctest.Wait()
		if removed, events := w.taken(); len(removed)+len(events) > 0 {
			t.Fatalf("with room for all removed %v, told %q", removed, events)
		}
		w.fill(280 * mib) // 881 of 1000, 88.1%: 81 to free
		time.Sleep(Period)
		synctest.Wait()
		removed, events := w.taken()
		if diff := cmp.Diff([]string{"a"}, removed); diff != "" {
			t.Errorf("removed (-want +got):\n%s", diff)
		}
		if len(events) != 1 || !strings.HasPrefix(events[0], "Normal ImagesCollected: Removed image a:1 (100.0 MiB): 89% of the disk at /images is used") {
			t.Errorf("events %q", events)
		}
		if diff := cmp.Diff(map[string]int{"space": 1}, w.counts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
	})
}

const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// The runtime counts compressed layers: on disk an image is larger.
func TestTheDiskHasTheLastWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.collector(t, byDefault)
		for _, id := range []string{"a", "b", "c"} {
			w.add(id, 10*mib)
			w.onDisk[id] = 200 * mib
		}
		stop := start(t, c)
		synctest.Wait()
		w.fill(250 * mib)
		time.Sleep(Period)
		synctest.Wait()
		stop()
		if removed, _ := w.taken(); !slices.Equal(removed, []string{"a"}) {
			t.Errorf("removed %v, want the one that made room enough", removed)
		}
	})
}

func TestWhatCantBeRemovedDoesntStopTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.collector(t, byDefault)
		for _, id := range []string{"a", "b", "c"} {
			w.add(id, 300*mib)
		}
		w.failing["a"] = true
		defer start(t, c)()
		synctest.Wait()
		w.taken() // that they are too young yet
		time.Sleep(Period)
		synctest.Wait()
		removed, events := w.taken()
		if !slices.Equal(removed, []string{"b"}) {
			t.Errorf("removed %v, want the next one in its place", removed)
		}
		if len(events) != 1 || !strings.HasPrefix(events[0], "Warning ImageGCFailed: image a can't be removed: device busy; removed image b") {
			t.Errorf("events %q", events)
		}
	})
}

func TestTooLittleToRemoveIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.collector(t, byDefault)
		w.add("a", 50*mib)
		w.add("b", 50*mib)
		w.use("b")
		w.fill(850 * mib)
		defer start(t, c)()
		time.Sleep(Period)
		synctest.Wait()
		_, events := w.taken()
		// The first look finds it too young.
		if len(events) != 2 || !strings.HasPrefix(events[1], "Warning FreeDiskSpaceFailed: the disk needs 100.0 MiB more to come down to imageGCLowThresholdPercent (80), but image a (50.0 MiB) could be removed: of the other images 1 are in use and 0 pinned or too young") {
			t.Errorf("events %q", events)
		}
	})
}

func TestAgesAndWhatElseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.separate = true // a full disk of containers is none of its business
		c := w.collector(t, Policy{High: 85, Low: 80, MinAge: 2 * time.Minute, MaxAge: time.Hour})
		w.add("a", mib)
		w.add("b", mib)
		w.use("b")
		defer start(t, c)()
		time.Sleep(30 * time.Minute)
		w.use()
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		if removed, events := w.taken(); len(removed) > 0 || len(events) > 0 {
			t.Fatalf("after an hour and a minute at the most: removed %v, %q", removed, events)
		}
		time.Sleep(Period)
		synctest.Wait()
		if removed, _ := w.taken(); !slices.Equal(removed, []string{"a"}) {
			t.Errorf("removed %v, want what wasn't used for over an hour", removed)
		}
		// Age counts even if nobody can tell how full the disk is.
		w.fail("fs", errors.New("not now"))
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		removed, events := w.taken()
		if !slices.Equal(removed, []string{"b"}) || len(events) == 0 || !strings.HasPrefix(events[0], "Warning ImageGCFailed: find out where images are kept: not now") {
			t.Errorf("removed %v, events %q", removed, events)
		}
		if diff := cmp.Diff(map[string]int{"age": 2}, w.counts); diff != "" {
			t.Errorf("counts (-want +got):\n%s", diff)
		}
	})
}

func TestNothingGoesWhileUsersAreUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.collector(t, Policy{High: 0, Low: 0})
		w.add("a", 900*mib)
		w.fail("uses", ErrUsesUnknown)
		defer start(t, c)()
		time.Sleep(time.Hour)
		synctest.Wait()
		if removed, events := w.taken(); len(removed)+len(events) > 0 {
			t.Errorf("removed %v, told %q", removed, events)
		}
		if _, err := c.FreeNow(t.Context()); !errors.Is(err, ErrUsesUnknown) {
			t.Errorf("error %v", err)
		}
		w.fail("uses", nil)
		c.Wake() // what the agent does then
		time.Sleep(gap)
		synctest.Wait()
		if removed, _ := w.taken(); len(removed) != 1 {
			t.Errorf("removed %v", removed)
		}
	})
}

func TestErrorsAreReported(t *testing.T) {
	for what, c := range map[string]struct {
		break_ func(*world)
		want   string
	}{
		"list":     {func(w *world) { w.fail("list", errors.New("gone")) }, "Warning ImageGCFailed: list images: gone"},
		"uses":     {func(w *world) { w.fail("uses", errors.New("gone")) }, "Warning ImageGCFailed: find out which images are in use: gone"},
		"measure":  {func(w *world) { w.fail("measure", errors.New("no such mount")) }, "Warning ImageGCFailed: no such mount"},
		"capacity": {func(w *world) { w.capacity = 0 }, "Warning InvalidDiskCapacity: invalid capacity 0 on the image file system at /images"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld()
			c.break_(w)
			col := w.collector(t, byDefault)
			col.collect(t.Context())
			if _, events := w.taken(); !slices.Equal(events, []string{c.want}) {
				t.Errorf("events %q", events)
			}
		})
	}
}

func TestWakesAreMerged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		looks := 0
		c := w.collector(t, Policy{High: 100, MaxAge: 1})
		w.looked = func(string) { looks++ }
		w.failing["a"] = true
		w.add("a", 1)
		defer start(t, c)()
		synctest.Wait()
		before := looks
		for range 100 {
			c.Wake()
			time.Sleep(gap / 100)
		}
		synctest.Wait()
		if looks-before != 1 {
			t.Errorf("%d looks for 100 wake-ups within %s", looks-before, gap)
		}
	})
}

func TestPolicyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.collector(t, Policy{High: 100, Low: 80})
		defer start(t, c)()
		w.add("a", 100*mib, "a:1")
		w.fill(780 * mib) // 88%
		time.Sleep(Period + time.Minute)
		expect := func(when string, want ...string) {
			t.Helper()
			synctest.Wait()
			if removed, _ := w.taken(); !slices.Equal(removed, want) {
				t.Errorf("%s: removed %v, want %v", when, removed, want)
			}
		}
		expect("turned off")
		c.SetPolicy(Policy{High: 85, Low: 80})
		expect("stricter", "a")
		w.add("b", 100*mib, "b:1")
		time.Sleep(time.Minute)
		c.SetPolicy(Policy{High: 95, Low: 80})
		expect("less strict")
		time.Sleep(Period)
		expect("less strict, at the next look")
		c.SetPolicy(Policy{High: 95, Low: 80, MaxAge: 30 * time.Second})
		time.Sleep(gap)
		expect("an age", "b")
	})
}

func TestPolicyChangesWhileItIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.collector(t, byDefault)
		defer start(t, c)()
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Go(func() {
				for i := range 50 {
					c.SetPolicy(Policy{High: 100 - (n+i)%10, Low: 80})
					time.Sleep(gap / 10)
				}
			})
		}
		w.fill(920 * mib)
		for i := range 30 {
			w.add(string(rune('A'+i)), mib)
			if _, err := c.FreeNow(t.Context()); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
	})
}

func TestFreeNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.collector(t, Policy{High: 100, Low: 80, MinAge: 2 * time.Minute})
		w.add("a", mib)
		w.add("used", mib)
		w.use("used")
		if _, err := c.List(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Minute)
		w.add("young", mib)
		r, err := c.FreeNow(t.Context())
		if err != nil || r.Freed != mib || len(r.Removed) != 1 || r.Removed[0].ID != "a" || len(r.Retained) != 2 {
			t.Errorf("%+v, %v", r, err)
		}
		if _, events := w.taken(); len(events) != 1 || !strings.Contains(events[0], "short of disk space") {
			t.Errorf("events %q", events)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.turn <- struct{}{}
		if _, err := c.FreeNow(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}

func TestEachRunReportsWhichImagesThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		c := w.collector(t, byDefault)
		w.add("a", mib)
		w.add("b", mib)
		if _, err := c.List(t.Context()); err != nil || len(w.lists) > 0 {
			t.Fatalf("a look told it: %v, %v", w.lists, err)
		}
		time.Sleep(time.Hour)
		c.collect(t.Context())
		if !slices.Equal(w.present, []string{"a", "b"}) || len(w.lists) != 1 || time.Since(w.lists[0]) != 0 {
			t.Errorf("told %v at %v", w.present, w.lists)
		}
	})
}

func TestStatfs(t *testing.T) {
	d, err := Statfs(t.TempDir())
	if err != nil || d.Capacity == 0 || d.Available == 0 || d.Available > d.Capacity {
		t.Errorf("%+v, %v", d, err)
	}
	if _, err := Statfs("/no/such/directory"); err == nil || !strings.Contains(err.Error(), "/no/such/directory") {
		t.Errorf("error %v", err)
	}
}
