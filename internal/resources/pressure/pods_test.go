package pressure_test

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/pod"
	. "github.com/deckhand-node/deckhand/internal/resources/pressure"
	"github.com/deckhand-node/deckhand/internal/resources/stats"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Main(func() int { return mounttest.Run(m) })) }

// host has the pods that NodePods lists: each with an emptyDir and a directory of logs.
type host struct {
	*desired.Merger
	claims   []desired.Claim
	observed map[types.UID]*pod.Observed
	mounted  []volume.Instance
	leaving  map[types.UID]bool

	mu sync.Mutex
	// disk is the use of each directory, by its pod. A hanging one is measured until its context ends.
	disk     map[string]usage.Usage
	hangs    map[string]bool
	measured []string
}

func newHost(names ...string) *host {
	h := &host{Merger: desired.New(logr.Discard(), pod.SourceFile), observed: map[types.UID]*pod.Observed{}, disk: map[string]usage.Usage{}, hangs: map[string]bool{}}
	for _, name := range names {
		h.add(name)
	}
	return h
}

func (h *host) add(name string, change ...func(*v1.Pod)) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}}
	p.Spec.Containers = []v1.Container{{Name: "c"}}
	if strings.HasPrefix(name, "critical") {
		p.Spec.Priority = ptr.To(int32(2000001000))
	}
	for _, f := range change {
		f(p)
	}
	h.claims = append(h.claims, desired.Claim{Desired: &pod.Desired{Pod: p, Source: pod.SourceFile}})
	v := volume.Instance{Pod: p, Place: volume.Place{UID: p.UID, Dir: filepath.Join("/volumes", name)}}
	v.Spec.Volume = &v1.Volume{Name: "data", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}}
	h.mounted = append(h.mounted, v)
	h.Report(desired.Report{Source: pod.SourceFile, Claims: h.claims})
}

func (h *host) pods() *NodePods {
	return NewNodePods(NodePodsConfig{Desired: h.Merger, Observed: h.seen(), Allocations: noAllocations{}, Volumes: h, Layers: h, Meter: h, Logs: "/logs",
		Sample: func(context.Context, bool) (*stats.Sample, error) { return &stats.Sample{}, nil },
		Ends:   func(types.UID) bool { return false }})
}

type runtimeOf map[types.UID]*pod.Observed

func (r runtimeOf) Get(uid types.UID) *pod.Observed { return r[uid] }

func (r runtimeOf) All() []*pod.Observed { return slices.Collect(maps.Values(r)) }

func (h *host) seen() runtimeOf { return h.observed }

type noAllocations struct{}

func (noAllocations) Get(types.UID) *pod.Allocation { return nil }

func (h *host) Instances() []volume.Instance { return h.mounted }

func (h *host) Holds(uid types.UID) bool {
	return h.leaving[uid] || slices.ContainsFunc(h.mounted, func(v volume.Instance) bool { return v.UID == uid })
}

func (h *host) WritableLayer(context.Context, types.UID) (map[string]usage.Usage, error) {
	return nil, nil
}

func (h *host) Measure(ctx context.Context, dir string) (usage.Usage, error) {
	name, isVolume := strings.CutPrefix(dir, "/volumes/")
	if !isVolume {
		return usage.Usage{}, nil
	}
	h.mu.Lock()
	h.measured = append(h.measured, name)
	hangs, u := h.hangs[name], h.disk[name]
	h.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return usage.Usage{}, ctx.Err()
	}
	return u, nil
}

// walks returns the pods that were measured since the last call, in their order.
func (h *host) walks() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := strings.Join(h.measured, " ")
	h.measured = nil
	return list
}

// TestUnlistedPods: while an API server can't be reached, pods of an earlier agent are candidates, but only if all pods
// that run are listed.
func TestUnlistedPods(t *testing.T) {
	h := &host{Merger: desired.New(logr.Discard(), pod.SourceFile, pod.SourceAPI), observed: map[types.UID]*pod.Observed{}}
	h.add("a")
	n := h.pods()
	if _, err := n.Pods(t.Context(), Needs{}); err == nil {
		t.Error("pods of the API server may be missing")
	}
	h.Report(desired.Report{Source: pod.SourceAPI, Pending: true, Away: true})
	list(t, n, Needs{})
	h.observed["stranger"] = &pod.Observed{UID: "stranger", Containers: []pod.Container{{State: pod.ContainerRunning}}}
	if _, err := n.Pods(t.Context(), Needs{}); err == nil {
		t.Error("a pod runs that isn't listed")
	}
	h.Report(desired.Report{Source: pod.SourceAPI})
	list(t, n, Needs{}) // the pod is being removed
}

func list(t *testing.T, n *NodePods, needs Needs) map[string]Pod {
	t.Helper()
	pods, err := n.Pods(t.Context(), needs)
	if err != nil {
		t.Fatal(err)
	}
	return byName(pods)
}

func byName(pods []Pod) map[string]Pod {
	list := map[string]Pod{}
	for _, p := range pods {
		list[p.Name] = p
	}
	return list
}

// TestActivePods: a pod whose containers have all ended counts while it holds a sandbox or a volume: one that fills the disk
// fails again and again, and holds the space meanwhile.
func TestActivePods(t *testing.T) {
	h := newHost("waits", "sandbox", "runs", "gone")
	ended := []pod.Container{{Name: "c", State: pod.ContainerExited}}
	h.observed["waits"] = &pod.Observed{Containers: ended}
	h.observed["sandbox"] = &pod.Observed{Containers: ended, Sandboxes: []pod.Sandbox{{State: pod.SandboxReady}}}
	h.observed["runs"] = &pod.Observed{Containers: []pod.Container{{Name: "c", State: pod.ContainerRunning}}}
	h.observed["gone"] = &pod.Observed{Containers: ended, Sandboxes: []pod.Sandbox{{State: pod.SandboxNotReady}}}
	h.mounted = slices.DeleteFunc(h.mounted, func(v volume.Instance) bool { return v.UID != "waits" })
	n := h.pods()
	got := list(t, n, Needs{})
	for name, want := range map[string]bool{"waits": true, "sandbox": true, "runs": true, "gone": false} {
		if got[name].Active != want || n.Holding(types.UID(name)) != want {
			t.Errorf("%s: active %v, holding %v, want %v", name, got[name].Active, n.Holding(types.UID(name)), want)
		}
	}
	// A volume that is being removed still takes space, and ending the pod again would free nothing.
	h.leaving = map[types.UID]bool{"gone": true}
	if list(t, n, Needs{})["gone"].Active || !n.Holding("gone") {
		t.Error("a pod whose volume is being removed holds nothing, or may be ended")
	}
}

// TestDiskWalks: a pod whose volume doesn't answer delays the list for 10 s, and keeps its last figure. A critical pod is
// measured once a minute.
func TestDiskWalks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost("a", "b", "critical", "hung")
		for name, bytes := range map[string]int64{"a": 1, "b": 30, "critical": 20, "hung": 10} {
			h.disk[name] = usage.Usage{Bytes: bytes}
		}
		n := h.pods()
		first := list(t, n, Needs{Disk: true})
		if first["b"].Volumes.Bytes != 30 || first["critical"].Volumes.Bytes != 20 || strings.Count(h.walks(), " ") != 3 {
			t.Errorf("the first figures: %+v", first)
		}
		h.hangs["hung"] = true
		h.disk["a"] = usage.Usage{Bytes: 5}
		began := time.Now()
		second := list(t, n, Needs{Disk: true})
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("with one that hangs it takes %s", took)
		}
		if second["hung"].Volumes.Bytes != 10 || second["a"].Volumes.Bytes != 5 || second["critical"].Volumes.Bytes != 20 {
			t.Errorf("the second figures: %+v", second)
		}
		if walked := h.walks(); strings.Contains(walked, "critical") || strings.Count(walked, " ") != 2 {
			t.Errorf("measured again within a minute: %s", walked)
		}
		h.hangs["hung"] = false
		time.Sleep(time.Minute)
		list(t, n, Needs{Disk: true})
		if walked := h.walks(); !strings.Contains(walked, "critical") {
			t.Errorf("measured after a minute: %s", walked)
		}
	})
}

// TestOrderOfWalks: a pod that was never measured comes first, then the one that used most: time may be short.
func TestOrderOfWalks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		names := []string{"p1", "p2", "p3", "p4", "p5", "p6", "p7", "p8"}
		h := newHost(names...)
		for i, name := range names {
			h.disk[name] = usage.Usage{Bytes: int64(i + 1)}
		}
		n := h.pods()
		list(t, n, Needs{Disk: true})
		h.walks()
		h.add("new")
		for _, name := range append(names, "new") {
			h.hangs[name] = true
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan map[string]Pod, 1)
		go func() {
			pods, err := n.Pods(ctx, Needs{Disk: true})
			if err != nil {
				t.Error(err)
			}
			ended <- byName(pods)
		}()
		synctest.Wait()
		began := strings.Fields(h.walks())
		slices.Sort(began)
		if got := strings.Join(began, " "); got != "new p6 p7 p8" {
			t.Errorf("measured first: %s", got)
		}
		cancel()
		pods := <-ended
		for i, name := range names {
			if got := pods[name].Volumes.Bytes; got != int64(i+1) {
				t.Errorf("%s: %d bytes, without an answer the last figure counts", name, got)
			}
		}
		if pods["new"].Volumes.Bytes != 0 {
			t.Error("a pod that was never measured uses some of the disk")
		}
	})
}

// TestWalkOfHungVolume: a file system that a container mounts on its volume, or in it, and that hangs, holds up nobody: the
// last figure counts.
func TestWalkOfHungVolume(t *testing.T) {
	h := newHost("on", "in", "beside")
	dirs := map[types.UID]string{}
	for i := range h.mounted {
		v, dir := &h.mounted[i], t.TempDir()
		dirs[v.UID], v.Dir = dir, dir
		if err := os.Mkdir(filepath.Join(dir, "sub"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "file"), make([]byte, 1<<20), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	n := h.pods()
	n.Meter, n.Logs = usage.New(usage.Config{Took: func(bool, time.Duration) {}}), t.TempDir()
	for _, hung := range []string{"", dirs["on"], filepath.Join(dirs["in"], "sub")} {
		if hung != "" {
			server := mounttest.Mount(t, hung)
			server.Hang()
			defer server.Resume()
		}
		began := time.Now()
		for name, p := range list(t, n, Needs{Disk: true}) {
			if p.Volumes.Bytes < 1<<20 || p.Volumes.Bytes > 2<<20 {
				t.Errorf("with %q hanging, %s uses %d bytes", hung, name, p.Volumes.Bytes)
			}
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("with %q hanging it takes %s", hung, took)
		}
	}
}

// TestSparedPods: a cluster's static pods and critical ones aren't evicted; alone all pods are static.
func TestSparedPods(t *testing.T) {
	h := newHost("static", "critical")
	h.add("api", func(p *v1.Pod) { p.Annotations = map[string]string{pod.AnnotationConfigSource: string(pod.SourceAPI)} })
	h.add("file", func(p *v1.Pod) { p.Annotations = map[string]string{pod.AnnotationConfigSource: string(pod.SourceFile)} })
	for alone, want := range map[bool]string{true: "critical", false: "critical file"} {
		n := h.pods()
		n.Standalone = alone
		var got []string
		for name, p := range list(t, n, Needs{}) {
			if p.Critical {
				got = append(got, name)
			}
		}
		slices.Sort(got)
		if text := strings.Join(got, " "); text != want {
			t.Errorf("alone %v: spared are %s, want %s", alone, text, want)
		}
	}
}
