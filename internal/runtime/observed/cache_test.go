package observed

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/runtime/translate"
)

var who = translate.Identity{UID: "uid", Name: "web", Namespace: "ns"}

func sandboxes(list ...pod.Sandbox) (rd reading) {
	for _, s := range list {
		rd.Sandboxes = append(rd.Sandboxes, sandboxReading{Pod: who, Sandbox: s, Detailed: true})
	}
	return rd
}

func containers(asOf time.Time, list ...pod.Container) reading {
	rd := reading{AsOf: asOf}
	for _, c := range list {
		rd.Containers = append(rd.Containers, &containerReading{Pod: who, Container: c, Detailed: true})
	}
	return rd
}

func TestLateContainerOfARemovedSandbox(t *testing.T) {
	c := newCache(func(types.UID) {})
	c.Merge(sandboxes(pod.Sandbox{ID: "s", State: pod.SandboxReady}))
	c.Remove("s")
	c.Merge(containers(time.Now(), pod.Container{ID: "never seen", Name: "main", SandboxID: "s", State: pod.ContainerRunning}))
	if o := c.Get("uid"); o != nil {
		t.Fatalf("%+v", o)
	}
}

func TestListsRuleInTheLongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(func(types.UID) {})
		there := pod.Sandbox{ID: "s", State: pod.SandboxReady}
		c.Merge(sandboxes(there))
		c.Remove("s")
		time.Sleep(time.Second)
		c.Revive(time.Now(), "s")
		if !c.Know("s").Gone {
			t.Fatal("a list right after a removal may still show what was removed")
		}
		time.Sleep(time.Minute)
		c.Revive(time.Now(), "s")
		c.Merge(sandboxes(there))
		if c.Get("uid") == nil {
			t.Fatal("what lists keep showing is there")
		}
	})
}

func TestTombstonesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(func(types.UID) {})
		c.Remove("s")
		time.Sleep(time.Minute)
		c.Listed(time.Now(), "", func(string) bool { return false })
		if !c.Know("s").Gone {
			t.Fatal("forgotten too soon")
		}
		time.Sleep(time.Hour)
		c.Listed(time.Now(), "", func(string) bool { return false })
		if c.Know("s").Gone {
			t.Fatal("remembered for ever")
		}
	})
}

func TestOrder(t *testing.T) {
	c := newCache(func(types.UID) {})
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	c.Merge(containers(at(9),
		pod.Container{ID: "b0", Name: "b", CreatedAt: at(2)},
		pod.Container{ID: "a1", Name: "a", Attempt: 1, CreatedAt: at(3)},
		pod.Container{ID: "a0", Name: "a", Attempt: 0, CreatedAt: at(1)},
	))
	c.Merge(containers(at(9), pod.Container{ID: "b1", Name: "b", Attempt: 1, CreatedAt: at(4)}, pod.Container{ID: "c0", Name: "c", CreatedAt: at(5)}))
	order := func() string {
		var ids []string
		for _, k := range c.Get("uid").Containers {
			ids = append(ids, k.ID)
		}
		return strings.Join(ids, " ")
	}
	if got := order(); got != "a1 a0 b1 b0 c0" {
		t.Errorf("order: %s", got)
	}
	c.Remove("a0")
	if got := order(); got != "a1 b1 b0 c0" {
		t.Errorf("the order of names must not depend on what is removed: %s", got)
	}
}

func TestLaterReadingOfTheSameStateCounts(t *testing.T) {
	c := newCache(func(types.UID) {})
	end := pod.Container{ID: "c", Name: "main", State: pod.ContainerExited, Reason: "Error"}
	oom := end
	oom.Reason = "OOMKilled"
	c.Merge(containers(time.Unix(2, 0), oom))
	c.Merge(containers(time.Unix(1, 0), end))
	if got := c.Get("uid").Containers[0].Reason; got != "OOMKilled" {
		t.Errorf("an older reading won: %s", got)
	}
	lost := end
	lost.State = pod.ContainerUnknown
	c.Merge(containers(time.Unix(3, 0), lost))
	if got := c.Get("uid").Containers[0]; got.State != pod.ContainerExited {
		t.Errorf("a known end became unknown: %+v", got)
	}
}

func TestCreatedWithAndRuntimeReported(t *testing.T) {
	wakes := 0
	c := newCache(func(types.UID) { wakes++ })
	of := func(cpu string, uid int64) pod.Container {
		return pod.Container{ID: "c", Name: "main", State: pod.ContainerRunning,
			CreatedWith:     &pod.CreatedWith{Resources: &v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cpu)}}},
			RuntimeReported: &pod.RuntimeReported{User: &v1.ContainerUser{Linux: &v1.LinuxContainerUser{UID: uid}}, StopSignal: v1.SIGTERM}}
	}
	first := of("1", 5)
	c.Merge(containers(time.Time{}, first))
	known := func() pod.Container { return c.Get("uid").Containers[0] }
	if known().CreatedWith != first.CreatedWith || known().RuntimeReported != first.RuntimeReported || wakes != 1 {
		t.Fatalf("%+v after %d wake-ups", known(), wakes)
	}
	now := time.Now()
	c.Merge(containers(now, pod.Container{ID: "c", Name: "main", State: pod.ContainerRunning})) // doesn't say
	c.Merge(containers(now, of("1000m", 5)))                                                    // says the same
	if known().CreatedWith != first.CreatedWith || known().RuntimeReported != first.RuntimeReported || wakes != 1 {
		t.Errorf("after news that are none: %+v, %d wake-ups", known(), wakes)
	}
	c.Merge(containers(now, of("1", 6)))
	if known().RuntimeReported.User.Linux.UID != 6 || known().CreatedWith != first.CreatedWith || wakes != 2 {
		t.Errorf("after another user: %+v, %d wake-ups", known(), wakes)
	}
	c.Merge(containers(now, of("2", 6)))
	if known().CreatedWith.Resources.Requests.Cpu().Value() != 2 || wakes != 3 {
		t.Errorf("after other resources: %+v, %d wake-ups", known(), wakes)
	}
	ended := pod.Container{ID: "c", Name: "main", State: pod.ContainerExited, ExitCode: 1}
	c.Merge(reading{Containers: []*containerReading{{Pod: who, Container: ended}}}) // an effect, not detailed
	if known().State != pod.ContainerExited || known().CreatedWith == nil || known().RuntimeReported == nil {
		t.Errorf("after its end: %+v", known())
	}
}
