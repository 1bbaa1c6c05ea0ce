package cgroup_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
	"github.com/deckhand-node/deckhand/test/embeddedtest"
)

// want is a state of a container, and what its cgroup shows for it.
type want struct {
	cpu, cpuLimit, memory, memoryLimit string
	quota, bytes                       string // "max" for no bound
}

// files are what cgroup v1, or v2, has where.
func (w want) files() map[string]string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return map[string]string{"cpu.max": w.quota + " 100000", "memory.max": w.bytes}
	}
	quota, bytes := w.quota, w.bytes
	if quota == "max" {
		quota = "-1"
	}
	if bytes == "max" {
		bytes = "9223372036854771712"
	}
	return map[string]string{"cpu/cpu.cfs_quota_us": quota, "memory/memory.limit_in_bytes": bytes}
}

// own are what only the container's group shows: that it is kept off swap, where
// the host can, and not slowed down.
func (w want) own(s cgroup.Support) map[string]string {
	files := map[string]string{}
	if s.V2 {
		files["memory.high"] = "max"
	}
	switch {
	case s.V2 && s.Swap:
		files["memory.swap.max"] = "0"
	case s.Swap && w.bytes == "max":
		files["memory/memory.memsw.limit_in_bytes"] = "9223372036854771712"
	case s.Swap:
		files["memory/memory.memsw.limit_in_bytes"] = w.bytes
	}
	return files
}

func (w want) pod() *v1.Pod {
	list := func(cpu, memory string) v1.ResourceList {
		l := v1.ResourceList{}
		for name, value := range map[v1.ResourceName]string{v1.ResourceCPU: cpu, v1.ResourceMemory: memory} {
			if value != "" {
				l[name] = resource.MustParse(value)
			}
		}
		return l
	}
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "uid-resize"}}
	p.Spec.Containers = []v1.Container{{Name: "web", Resources: v1.ResourceRequirements{Requests: list(w.cpu, w.memory), Limits: list(w.cpuLimit, w.memoryLimit)}}}
	return p
}

// TestRealContainersAreResized raises, lowers, sets and lifts limits of a running
// container in the core's order: no step may fail, and all have to arrive.
func TestRealContainersAreResized(t *testing.T) {
	in := embeddedtest.Start(t)
	m := cgroup.New(cgroup.Config{CgroupRoot: in.CgroupRoot}, logr.Discard())
	steps := []want{
		{"100m", "200m", "32Mi", "64Mi", "20000", "67108864"},
		{"1", "2", "128Mi", "256Mi", "200000", "268435456"},
		{"50m", "100m", "32Mi", "32Mi", "10000", "33554432"},
		{"50m", "", "32Mi", "", "max", "max"},
		{"50m", "300m", "32Mi", "48Mi", "30000", "50331648"},
		{"1m", "", "32Mi", "40Mi", "max", "41943040"},
		{"1m", "1m", "32Mi", "", "1000", "max"},
	}
	// The runtime's test pod has the group of a Guaranteed pod. That class stays, whatever the steps say.
	place := want{cpuLimit: "1", memoryLimit: "1Gi"}.pod()
	host, err := m.Support()
	if err != nil {
		t.Fatal(err)
	}
	settings := &translate.Settings{CgroupV2: host.V2, BoundSwap: host.Swap, HugePageSizes: host.HugePages}
	old := allocated.Of(steps[0].pod())
	if err := m.Ensure(t.Context(), place, allocated.PodLimits(steps[0].pod(), old)); err != nil { // it goes when the instance is taken down
		t.Fatal(err)
	}
	running := in.RunPod(t, "resize", nil)
	client := cri.NewRuntimeServiceClient(in.Connect(t))
	for _, w := range steps {
		p := w.pod()
		next := allocated.Of(p)
		if err := m.Resize(t.Context(), place, allocated.PodLimits(p, allocated.Most(old, next))); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		_, err := client.UpdateContainerResources(ctx, &cri.UpdateContainerResourcesRequest{
			ContainerId: running.Container,
			Linux:       translate.ResizedResources(settings, p, &p.Spec.Containers[0], p.Spec.Containers[0].Resources, translate.Assignment{}),
		})
		cancel()
		if err != nil {
			t.Fatalf("%+v: %v", w, err)
		}
		if err := m.Resize(t.Context(), place, allocated.PodLimits(p, next)); err != nil {
			t.Fatal(err)
		}
		old = next
		container := filepath.Join(m.CgroupParent(place), running.Container)
		shows(t, w, m.CgroupParent(place), w.files())
		shows(t, w, container, w.files())
		shows(t, w, container, w.own(host))
	}
}

func shows(t *testing.T, w want, group string, files map[string]string) {
	t.Helper()
	for file, value := range files {
		controller, name := filepath.Split(file)
		got, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", controller, group, name))
		if err != nil || strings.TrimSpace(string(got)) != value {
			t.Errorf("%+v: %s of %s is %q (%v), want %s", w, file, group, got, err, value)
		}
	}
}
