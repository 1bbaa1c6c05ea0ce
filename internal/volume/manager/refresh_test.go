package manager_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/pod/object"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/atomicwriter"
	"github.com/deckhand-node/deckhand/internal/volume/manager"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
)

func contentOf(w *world, uid types.UID, plugin, name, file string) string {
	return filepath.Join(w.root, "pods", string(uid), "volumes", plugin, name, file)
}

func TestChangedObjectsReachMountedVolumes(t *testing.T) {
	w := newWorld(t)
	m, _ := w.start(w.config())
	w.setConfigMap("web", map[string]string{"a": "1"})
	w.setSecret("keys", map[string]string{"k": "old"})
	both := v1.Volume{Name: "both", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
		{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: v1.LocalObjectReference{Name: "web"}}},
		{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "keys"}}},
	}}}}
	p := w.want(newPod(configMap("conf", "web"), secretVolume("keys", "keys"), both, labels("me")))
	must(t, m.Prepare(t.Context(), p, w))
	w.setConfigMap("web", map[string]string{"a": "2"})
	eventually(t, "the ConfigMap is seen", func() bool {
		return holds(contentOf(w, p.UID, "kubernetes.io~configmap", "conf", "a"), "2") && holds(contentOf(w, p.UID, "kubernetes.io~projected", "both", "a"), "2")
	})
	w.setSecret("keys", map[string]string{"k": "new"})
	eventually(t, "the Secret is seen", func() bool {
		return holds(contentOf(w, p.UID, "kubernetes.io~secret", "keys", "k"), "new") && holds(contentOf(w, p.UID, "kubernetes.io~projected", "both", "k"), "new")
	})
	edited := p.DeepCopy()
	edited.Labels = map[string]string{"color": "blue"}
	w.want(edited)
	eventually(t, "the labels are seen", func() bool {
		return holds(contentOf(w, p.UID, "kubernetes.io~downward-api", "me", "labels"), `color="blue"`)
	})
	must(t, m.Clean(t.Context(), p.UID))
	w.clean()
}

// follower is a plugin whose volumes follow ConfigMaps, and which tells what it is asked.
type follower struct {
	*stand
	mu   sync.Mutex
	pods []*v1.Pod
	// changes says that each refresh changes something.
	changes bool
	// old is a file of old content that a refresh finds; empty for none.
	old string
}

func (*follower) Supports(s volume.Spec) bool {
	return s.Volume.ConfigMap != nil || s.Volume.DownwardAPI != nil
}

func (f *follower) Refresh(_ context.Context, r volume.Request) (bool, error) {
	f.mu.Lock()
	f.pods = append(f.pods, r.Pod)
	f.mu.Unlock()
	var st unix.Stat_t
	if r.Held != nil && unix.Lstat(f.old, &st) == nil {
		r.Held(st.Dev, st.Ino)
	}
	return f.changes, f.call("refresh", r.Spec.Name())
}

// following runs a manager with a follower in virtual time.
func following(t *testing.T, test func(t *testing.T, w *world, f *follower, m *manager.Manager)) {
	f := &follower{}
	plugins := func(s *stand) []volume.Plugin {
		f.stand = s
		return []volume.Plugin{f}
	}
	withPlugins(t, plugins, func(t *testing.T, w *world, _ *stand, m *manager.Manager) { test(t, w, f, m) })
}

func TestOnlyWhatHasChangedIsRefreshed(t *testing.T) {
	following(t, func(t *testing.T, w *world, f *follower, m *manager.Manager) {
		w.setConfigMap("web", map[string]string{"a": "1"})
		w.setConfigMap("other", map[string]string{"a": "1"})
		p := w.want(newPod(configMap("conf", "web"), configMap("rest", "other"), labels("me")))
		must(t, m.Prepare(t.Context(), p, w))
		refreshes := func(want ...string) {
			t.Helper()
			synctest.Wait()
			time.Sleep(time.Hour) // nothing comes later either
			f.stand.mu.Lock()
			var got []string
			for _, c := range f.calls {
				if strings.HasPrefix(c, "refresh ") {
					got = append(got, c)
				}
			}
			f.calls = nil
			f.stand.mu.Unlock()
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("refreshed %q, want %q", got, want)
			}
		}
		refreshes()
		w.wake()
		refreshes()
		w.setConfigMap("web", map[string]string{"a": "2"})
		refreshes("refresh conf")
		w.want(p.DeepCopy()) // a new version of the pod with the same fields
		refreshes()
		edited := p.DeepCopy()
		edited.Annotations = map[string]string{"x": "y"}
		w.want(edited)
		refreshes("refresh me")
		if got := f.pods[len(f.pods)-1]; got != edited {
			t.Error("it wasn't refreshed with the newest pod")
		}
		resized := edited.DeepCopy()
		resized.Spec.Containers[0].Resources.Limits = v1.ResourceList{}
		w.want(resized)
		refreshes()
		must(t, m.Clean(t.Context(), p.UID))
		w.setConfigMap("web", map[string]string{"a": "3"})
		refreshes()
	})
}

func TestARefreshThatFailsIsReportedOnceAndTriedAgain(t *testing.T) {
	following(t, func(t *testing.T, w *world, f *follower, m *manager.Manager) {
		w.setConfigMap("web", map[string]string{"a": "1"})
		p := w.want(newPod(configMap("conf", "web")))
		must(t, m.Prepare(t.Context(), p, w))
		synctest.Wait()
		f.setFail("refresh conf", errors.New("no space"))
		start := time.Now()
		w.setConfigMap("web", map[string]string{"a": "2"})
		time.Sleep(3 * time.Second) // at 0, 0.5, 1.5 s; next at 3.5
		if n := f.count("refresh conf"); n != 3 {
			t.Errorf("tried %d times in %v", n, time.Since(start))
		}
		if got := w.told(); len(got) != 1 || got[0] != `web Warning FailedMount: MountVolume.SetUp failed for volume "conf" : no space; it keeps the content that it has` {
			t.Errorf("told: %q", got)
		}
		f.setFail("refresh conf", errors.New("no inodes"))
		time.Sleep(time.Second)
		if got := w.told(); len(got) != 2 {
			t.Errorf("told: %q", got)
		}
		f.setFail("refresh conf", nil)
		w.setConfigMap("web", map[string]string{"a": "3"}) // that doesn't wait for the back-off
		synctest.Wait()
		n := f.count("refresh conf")
		time.Sleep(time.Hour)
		if again := f.count("refresh conf"); n != 5 || again != n {
			t.Errorf("tried %d times, and %d in the end", n, again)
		}
		if want := "test.example/stand volume_mount true"; !slices.Contains(w.metered, want) {
			t.Errorf("not counted: %v", w.metered)
		}
		must(t, m.Clean(t.Context(), p.UID))
	})
}

// TestRoomEndsTheBackOffOfARefresh: an update that a disk refused is reported to the part that follows disks, and tried
// once for each time that a disk has room again.
func TestRoomEndsTheBackOffOfARefresh(t *testing.T) {
	following(t, func(t *testing.T, w *world, f *follower, m *manager.Manager) {
		w.setConfigMap("web", map[string]string{"a": "1"})
		p := w.want(newPod(configMap("conf", "web")))
		must(t, m.Prepare(t.Context(), p, w))
		synctest.Wait()
		f.setFail("refresh conf", unix.ENOSPC)
		w.setConfigMap("web", map[string]string{"a": "2"})
		time.Sleep(time.Hour) // the back-off is long by now
		synctest.Wait()
		before := f.count("refresh conf")
		m.DiskFreed()
		synctest.Wait()
		if n := f.count("refresh conf"); n != before+1 {
			t.Errorf("room again: %d updates tried, want 1", n-before)
		}
		f.setFail("refresh conf", nil)
		m.DiskFreed()
		synctest.Wait()
		m.DiskFreed()
		synctest.Wait()
		if n := f.count("refresh conf"); n != before+2 {
			t.Errorf("room again, twice: %d updates tried, want 2", n-before)
		}
		if n := len(w.refused); n != before+1 {
			t.Errorf("%d failures of the disk were reported, want %d", n, before+1)
		}
		must(t, m.Clean(t.Context(), p.UID))
	})
}

func TestARefreshThatWaitsForAnObjectIsNotTriedMeanwhile(t *testing.T) {
	following(t, func(t *testing.T, w *world, f *follower, m *manager.Manager) {
		w.setConfigMap("web", map[string]string{"a": "1"})
		p := w.want(newPod(configMap("conf", "web")))
		must(t, m.Prepare(t.Context(), p, w))
		f.setFail("refresh conf", volume.Awaits(pod.Object{Kind: "ConfigMap", Namespace: "default", Name: "web"}, "it is gone"))
		w.setConfigMap("web", nil)
		time.Sleep(time.Hour)
		w.wake()
		time.Sleep(time.Hour)
		if n := f.count("refresh conf"); n != 1 {
			t.Errorf("tried %d times", n)
		}
		f.setFail("refresh conf", nil)
		w.setConfigMap("web", map[string]string{"a": "2"})
		synctest.Wait()
		if n := f.count("refresh conf"); n != 2 {
			t.Errorf("tried %d times", n)
		}
		must(t, m.Clean(t.Context(), p.UID))
	})
}

func TestWhatIsNotKnownYetIsNoChange(t *testing.T) {
	following(t, func(t *testing.T, w *world, f *follower, m *manager.Manager) {
		w.setConfigMap("web", map[string]string{"a": "1"})
		w.setUnread(true)
		p := w.want(newPod(configMap("conf", "web")))
		w.setRunning(p.UID, true) // it is adopted
		must(t, m.Prepare(t.Context(), p, w))
		time.Sleep(time.Hour)
		if n := f.count("refresh conf"); n != 0 {
			t.Errorf("refreshed %d times", n)
		}
		w.setUnread(false)
		synctest.Wait()
		if n := f.count("refresh conf"); n != 1 {
			t.Errorf("refreshed %d times", n)
		}
		w.setUnread(true)
		time.Sleep(time.Hour)
		w.setUnread(false)
		synctest.Wait()
		if n := f.count("refresh conf"); n != 1 {
			t.Errorf("refreshed %d times", n)
		}
		must(t, m.Clean(t.Context(), p.UID))
	})
}

func TestWhatChangesWhileAVolumeIsMountedOrRefreshedIsNotMissed(t *testing.T) {
	following(t, func(t *testing.T, w *world, f *follower, m *manager.Manager) {
		w.setConfigMap("web", map[string]string{"a": "1"})
		p := w.want(newPod(configMap("conf", "web")))
		resume := f.hang(t, "mount conf")
		defer resume()
		done := make(chan error, 1)
		go func() { done <- m.Prepare(t.Context(), p, w) }()
		<-f.entered // it may have been read already
		w.setConfigMap("web", map[string]string{"a": "2"})
		synctest.Wait()
		resume()
		must(t, <-done)
		synctest.Wait()
		if n := f.count("refresh conf"); n != 1 {
			t.Fatalf("refreshed %d times", n)
		}
		resume = f.hang(t, "refresh conf")
		defer resume()
		w.setConfigMap("web", map[string]string{"a": "3"})
		<-f.entered
		w.setConfigMap("web", map[string]string{"a": "4"})
		synctest.Wait()
		resume()
		synctest.Wait()
		if n := f.count("refresh conf"); n != 3 {
			t.Errorf("refreshed %d times", n)
		}
		must(t, m.Clean(t.Context(), p.UID))
	})
}

// TestNobodyOfAHundredPodsWaitsASecondForAnEdit: the one wake-up is enough for all. The time is virtual, so it is how long
// they wait for a turn or a timer; bench/volumes measures how long the work takes.
func TestNobodyOfAHundredPodsWaitsASecondForAnEdit(t *testing.T) {
	inBubble(t, func(t *testing.T, w *world, _ *stand, m *manager.Manager) {
		w.setConfigMap("web", map[string]string{"a": "1"})
		var files []string
		for n := range 100 {
			uid := types.UID(fmt.Sprint("uid-", n))
			must(t, m.Prepare(t.Context(), w.want(namedPod(fmt.Sprint("p", n), uid, configMap("conf", "web"))), w))
			files = append(files, contentOf(w, uid, "kubernetes.io~configmap", "conf", "a"))
		}
		w.setConfigMap("web", map[string]string{"a": "2"})
		time.Sleep(time.Second)
		for _, file := range files {
			if !holds(file, "2") {
				t.Errorf("%s isn't written anew", file)
			}
		}
		for n := range files {
			must(t, m.Clean(t.Context(), types.UID(fmt.Sprint("uid-", n))))
		}
		w.clean()
	})
}

// Readers of the old content have some seconds to get through with it. Then it is removed, by one more refresh.
func TestWhatHasChangedIsRemovedLater(t *testing.T) {
	following(t, func(t *testing.T, w *world, f *follower, m *manager.Manager) {
		f.changes = true
		w.setConfigMap("web", map[string]string{"a": "1"})
		must(t, m.Prepare(t.Context(), w.want(newPod(configMap("conf", "web"))), w))
		count := func() int {
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			return len(f.pods)
		}
		w.setConfigMap("web", map[string]string{"a": "2"})
		if n := count(); n != 1 {
			t.Fatalf("refreshed %d times, want once for the change", n)
		}
		time.Sleep(atomicwriter.Grace - 1)
		if n := count(); n != 1 {
			t.Errorf("refreshed %d times before the time has come", n)
		}
		time.Sleep(time.Nanosecond)
		if n := count(); n != 2 {
			t.Errorf("refreshed %d times, want once more", n)
		}
		time.Sleep(time.Hour)
		if n := count(); n != 2 {
			t.Errorf("refreshed %d times: without a change nothing is to be removed", n)
		}
	})
}

// Old content that a container has a part of (subPath) is removed once it hasn't any more.
func TestWhatIsHeldIsRemovedLater(t *testing.T) {
	following(t, func(t *testing.T, w *world, f *follower, m *manager.Manager) {
		w.setConfigMap("web", map[string]string{"a": "1"})
		p := w.want(newPod(configMap("conf", "web")))
		f.old = filepath.Join(w.root, "pods", string(p.UID), volumestate.SubPaths, "conf", "main", "0")
		must(t, m.Prepare(t.Context(), p, w))
		must(t, os.MkdirAll(filepath.Dir(f.old), 0o700))
		must(t, os.WriteFile(f.old, nil, 0o600))
		refreshed := func(within time.Duration) int {
			time.Sleep(within)
			synctest.Wait()
			f.mu.Lock()
			defer f.mu.Unlock()
			n := len(f.pods)
			f.pods = nil
			return n
		}
		w.setConfigMap("web", map[string]string{"a": "2"})
		if n := refreshed(time.Hour); n < 2 || n > 30 {
			t.Errorf("refreshed %d times in an hour in which it was held", n)
		}
		must(t, os.RemoveAll(filepath.Dir(f.old)))
		if n := refreshed(time.Hour); n != 1 {
			t.Errorf("refreshed %d times afterwards, want once", n)
		}
	})
}

// counted counts what is looked up.
type counted struct {
	*world
	n atomic.Int64
}

func (c *counted) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	c.n.Add(1)
	return c.world.ConfigMap(ctx, namespace, name)
}

// TestLookUpsAreByWhatChanged: 600 mounted volumes cost nothing at rest, and an edit of one object is looked up by
// the volumes that are made from it, once each.
func TestLookUpsAreByWhatChanged(t *testing.T) {
	following(t, func(t *testing.T, w *world, f *follower, m *manager.Manager) {
		seen := &counted{world: w}
		synctest.Wait()
		goroutines := runtime.NumGoroutine()
		for n := range 6 {
			w.setConfigMap(fmt.Sprint("web-", n), map[string]string{"a": "1"})
		}
		for n := range 100 {
			var volumes []v1.Volume
			for i := range 6 {
				volumes = append(volumes, configMap(fmt.Sprint("conf-", i), fmt.Sprint("web-", i)))
			}
			must(t, m.Prepare(t.Context(), w.want(namedPod(fmt.Sprint("p", n), types.UID(fmt.Sprint("uid-", n)), volumes...)), seen))
		}
		look := func(change func()) int64 {
			synctest.Wait()
			seen.n.Store(0)
			change()
			time.Sleep(time.Hour)
			return seen.n.Load()
		}
		look(func() {}) // what is mounted is looked at once
		if n := look(func() {}); n != 0 {
			t.Errorf("%d look-ups in an hour at rest", n)
		}
		if n := runtime.NumGoroutine(); n > goroutines {
			t.Errorf("%d goroutines at rest, %d before anything was mounted", n, goroutines)
		}
		if n := look(func() { w.setConfigMap("web-3", map[string]string{"a": "2"}) }); n != 100 || f.count("refresh conf-3") != 100 {
			t.Errorf("%d look-ups and %d refreshes for an edit that 100 volumes show", n, f.count("refresh conf-3"))
		}
		if n := look(func() { w.setSecret("web-3", map[string]string{"a": "2"}) }); n != 0 {
			t.Errorf("%d look-ups for an object that no volume shows", n)
		}
		if n := look(func() { w.want(namedPod("p1", "uid-1")) }); n != 0 {
			t.Errorf("%d look-ups for a pod of which no volume shows anything", n)
		}
		for n := range 100 {
			must(t, m.Clean(t.Context(), types.UID(fmt.Sprint("uid-", n))))
		}
		if n := look(func() { w.setConfigMap("web-3", map[string]string{"a": "3"}) }); n != 0 {
			t.Errorf("%d look-ups for volumes that are gone", n)
		}
	})
}

// TestWhatTheNodeHasIsShown: limits that a pod leaves open are the node's.
func TestWhatTheNodeHasIsShown(t *testing.T) {
	following(t, func(t *testing.T, w *world, f *follower, m *manager.Manager) {
		open := v1.Volume{Name: "limits", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{
			{Path: "cpu", ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.cpu"}}}}}}
		p := w.want(newPod(open, labels("me")))
		must(t, m.Prepare(t.Context(), p, w))
		time.Sleep(time.Hour)
		w.changed.Wake(volumestate.Node)
		time.Sleep(time.Hour)
		if limits, me := f.count("refresh limits"), f.count("refresh me"); limits != 1 || me != 0 {
			t.Errorf("refreshed the limits %d times, the labels %d times", limits, me)
		}
		must(t, m.Clean(t.Context(), p.UID))
	})
}

// TestWhatCanOnlyBeAskedForIsAskedForAgain: nobody tells when it changes, but there is a time.
func TestWhatCanOnlyBeAskedForIsAskedForAgain(t *testing.T) {
	following(t, func(t *testing.T, w *world, f *follower, m *manager.Manager) {
		w.setConfigMap("web", map[string]string{"a": "1"})
		p := w.want(newPod(configMap("conf", "web")))
		seen := &later{world: w}
		must(t, m.Prepare(t.Context(), p, seen))
		synctest.Wait()
		seen.until.Store(time.Now().Add(time.Minute).UnixNano())
		w.setConfigMap("web", map[string]string{"a": "2"})
		time.Sleep(time.Minute - 1)
		if n := f.count("refresh conf"); n != 0 {
			t.Errorf("refreshed %d times", n)
		}
		time.Sleep(time.Second)
		if n, told := f.count("refresh conf"), w.told(); n != 1 || len(told) > 0 {
			t.Errorf("refreshed %d times, told %q", n, told)
		}
		must(t, m.Clean(t.Context(), p.UID))
	})
}

// later knows nothing until a time comes.
type later struct {
	*world
	until atomic.Int64
}

func (l *later) ConfigMap(ctx context.Context, namespace, name string) (*v1.ConfigMap, error) {
	if until := time.Unix(0, l.until.Load()); time.Now().Before(until) {
		return nil, &object.Unknown{Key: object.Key{Kind: object.ConfigMap, Namespace: namespace, Name: name}, Why: "it was asked for", NotBefore: until}
	}
	return l.world.ConfigMap(ctx, namespace, name)
}
