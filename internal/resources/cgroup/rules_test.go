package cgroup

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod/allocated"
	"github.com/deckhand-node/deckhand/internal/resources/cgroup/tree"
)

// need is "cpu request, cpu limit, memory request, memory limit"; "" leaves one out.
type need [4]string

func (n need) requirements() v1.ResourceRequirements {
	r := v1.ResourceRequirements{Requests: v1.ResourceList{}, Limits: v1.ResourceList{}}
	set := func(l v1.ResourceList, name v1.ResourceName, value string) {
		if value != "" {
			l[name] = resource.MustParse(value)
		}
	}
	set(r.Requests, v1.ResourceCPU, n[0])
	set(r.Limits, v1.ResourceCPU, n[1])
	set(r.Requests, v1.ResourceMemory, n[2])
	set(r.Limits, v1.ResourceMemory, n[3])
	return r
}

func makePod(uid string, needs ...need) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: types.UID(uid)}}
	for _, n := range needs {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Resources: n.requirements()})
	}
	return p
}

var (
	nothing = need{}
	exact   = need{"500m", "500m", "64Mi", "64Mi"}
	loose   = need{"100m", "1", "32Mi", "64Mi"}
)

func TestRuntimesDriverCounts(t *testing.T) {
	const uid = "7c5b5a2e-1f00-4d5e-9d0b-0c1b2a3f4e5d"
	m := New(Config{}, logr.Discard())
	m.UseDriver(tree.DriverSystemd) // which the runtime goes by
	if got, want := m.CgroupParent(makePod(uid, exact)), "kubepods-pod7c5b5a2e_1f00_4d5e_9d0b_0c1b2a3f4e5d.slice"; got != want {
		t.Errorf("with the runtime's driver: %s, want %s", got, want)
	}
}

func TestCheckSaysWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		l    hierarchies
		want string
	}{
		{hierarchies{}, "no cgroups are mounted"},
		{hierarchies{Layout: tree.Layout{All: []string{dir}, Mounts: map[string]string{"cpu": dir}}}, `no cgroup controller "memory"`},
		{hierarchies{Layout: tree.Layout{All: []string{dir}, Mounts: map[string]string{"cpu": dir, "memory": dir + "/gone"}}}, "can't make cgroups in"},
	} {
		err := c.l.check()
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line with %q", err, c.want)
		}
	}
	err := New(Config{Driver: tree.DriverSystemd}, logr.Discard()).Check()
	if _, statErr := os.Stat("/run/systemd/system"); statErr == nil {
		return // and everything may be fine
	}
	if err == nil || !strings.Contains(err.Error(), "set cgroupDriver: cgroupfs") || strings.Contains(err.Error(), "\n") {
		t.Errorf("without systemd: got %v", err)
	}
}

func TestBadUIDsAreRefused(t *testing.T) {
	m := New(Config{CgroupRoot: "/deckhand-test-never-made"}, logr.Discard())
	for _, uid := range []string{"", ".", "..", "a/b", "../../memory", "/"} {
		if err := m.Ensure(t.Context(), makePod(uid, nothing), allocated.Limits{}); err == nil {
			t.Errorf("Ensure took UID %q", uid)
		}
		if err := m.Resize(t.Context(), makePod(uid, nothing), allocated.Limits{}); err == nil {
			t.Errorf("Resize took UID %q", uid)
		}
		if _, err := m.PodGroup(t.Context(), types.UID(uid)); err == nil || errors.Is(err, fs.ErrNotExist) {
			t.Errorf("PodGroup took UID %q: %v", uid, err)
		}
		if err := m.Remove(t.Context(), types.UID(uid)); err == nil {
			t.Errorf("Remove took UID %q", uid)
		}
	}
}

func TestLimitedHierarchiesAreListedOnce(t *testing.T) {
	used := []string{"cpu", "memory", "pids"}
	together := hierarchies{Layout: tree.Layout{Mounts: map[string]string{"cpu": "/c", "memory": "/c"}}, used: used}
	apart := hierarchies{Layout: tree.Layout{Mounts: map[string]string{"cpu": "/c", "memory": "/m", "pids": "/c", "freezer": "/f"}}, used: used}
	if got := together.limited(); !slices.Equal(got, []string{"/c"}) {
		t.Errorf("got %v", got)
	}
	if got := apart.limited(); !slices.Equal(got, []string{"/c", "/m"}) {
		t.Errorf("got %v", got)
	}
}
