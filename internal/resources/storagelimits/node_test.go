package storagelimits_test

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/resources/storagelimits"
	"github.com/deckhand-node/deckhand/internal/volume"
	"github.com/deckhand-node/deckhand/internal/volume/usage"
)

const mib = 1 << 20

// node is what the judge sees: pods, what they keep, and what it tells.
type node struct {
	mu   sync.Mutex
	pods []storagelimits.Pod
	// directories and layers hold bytes, by path and by "uid container".
	dirs   map[string]int64
	layers map[string]int64
	// takes is how long measuring a directory takes.
	takes   time.Duration
	failing error

	listed   int      // how often the pods were
	measured []string // directories, and when: "10s /path"
	assigned map[string]int
	woken    []types.UID
	signals  []string
	began    time.Time
}

func (n *node) Pods() []storagelimits.Pod {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listed++
	return slices.Clone(n.pods)
}

func (n *node) Measure(ctx context.Context, dir string) (usage.Usage, error) {
	n.mu.Lock()
	n.measured = append(n.measured, fmt.Sprintf("%v %s", time.Since(n.began).Truncate(time.Second), dir))
	takes := n.takes
	n.mu.Unlock()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return usage.Usage{}, ctx.Err()
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return usage.Usage{Bytes: n.dirs[dir], Inodes: 1}, n.failing
}

func (n *node) Assign(dir string) (bool, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.assigned[dir]++
	return true, nil
}

func (n *node) Forget(dir string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.assigned[dir]--
}

func (n *node) WritableLayer(_ context.Context, uid types.UID) (map[string]usage.Usage, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := map[string]usage.Usage{}
	for key, bytes := range n.layers {
		if name, ok := strings.CutPrefix(key, string(uid)+" "); ok {
			list[name] = usage.Usage{Bytes: bytes}
		}
	}
	return list, n.failing
}

func (n *node) Evicted(signal string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.signals = append(n.signals, signal)
}

func (n *node) wake(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.woken = append(n.woken, uid)
}

// set changes the node while the judge runs.
func (n *node) set(change func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	change()
}

func (n *node) looks() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.measured)
}

// within runs a judge over a node, in a bubble of its own.
func within(t *testing.T, test func(t *testing.T, n *node, j *storagelimits.Manager)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := &node{dirs: map[string]int64{}, layers: map[string]int64{}, assigned: map[string]int{}, began: time.Now()}
		j := storagelimits.New(storagelimits.Config{
			Pods: n.Pods, Layers: n, Meter: n, Logs: "/logs", Wake: n.wake, Evictions: n, Log: testr.New(t),
		})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- j.Run(ctx) }()
		test(t, n, j)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// after lets time go by.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// pod makes a pod whose emptyDir volumes ("name", "name=limit", "name=limit,Memory") are mounted, with
// containers ("name", "name=limit").
func pod(uid string, volumes, containers []string) storagelimits.Pod {
	p := storagelimits.Pod{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: uid, UID: types.UID(uid)}}}
	for _, text := range volumes {
		text, medium, _ := strings.Cut(text, ",")
		name, limit, limited := strings.Cut(text, "=")
		e := &v1.EmptyDirVolumeSource{Medium: v1.StorageMedium(medium)}
		if limited {
			q := resource.MustParse(limit)
			e.SizeLimit = &q
		}
		p.Pod.Spec.Volumes = append(p.Pod.Spec.Volumes, v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: e}})
	}
	for i := range p.Pod.Spec.Volumes {
		v := &p.Pod.Spec.Volumes[i]
		p.Volumes = append(p.Volumes, volume.Instance{Pod: p.Pod, Spec: volume.Spec{Volume: v}, Place: volume.Place{Dir: filepath.Join("/pods", uid, v.Name)}})
	}
	for _, text := range containers {
		p.Pod.Spec.Containers = append(p.Pod.Spec.Containers, container(text))
	}
	return p
}

func container(text string) v1.Container {
	name, limit, limited := strings.Cut(text, "=")
	c := v1.Container{Name: name}
	if limited {
		c.Resources.Limits = v1.ResourceList{v1.ResourceEphemeralStorage: resource.MustParse(limit)}
	}
	return c
}
