package podresources

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	api "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/utils/cpuset"
	"k8s.io/utils/ptr"

	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type meter struct {
	mu    sync.Mutex
	asked []string
}

func (m *meter) Asked(version, call string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, fmt.Sprint(version, " ", call, " ", err == nil))
}

func publish(s *podstatus.Store, name string, phase v1.PodPhase) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}, Spec: v1.PodSpec{
		InitContainers: []v1.Container{{Name: "init"}, {Name: "sidecar", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)}}, Containers: []v1.Container{{Name: "a"}, {Name: "b"}}}}
	s.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p}, Status: &v1.PodStatus{Phase: phase}})
}

// devices has one device for container a of pod web, and two in all.
type devices struct{}

func (devices) Has(uid types.UID) map[string][]*api.ContainerDevices {
	if uid != "uid-web" {
		return nil
	}
	return map[string][]*api.ContainerDevices{"a": devices{}.Healthy()[:1]}
}

func (devices) Healthy() []*api.ContainerDevices {
	return []*api.ContainerDevices{
		{ResourceName: "example.com/gpu", DeviceIds: []string{"one"}, Topology: &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: 1}}}},
		{ResourceName: "example.com/gpu", DeviceIds: []string{"two"}},
	}
}

// serve serves pods in a directory until stop, and returns a connection.
func serve(t testing.TB, dir string, statuses *podstatus.Store, m Meter) (c *grpc.ClientConn, stop func()) {
	t.Helper()
	ready := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := New(Config{Dir: dir, Statuses: statuses, Devices: devices{}, CPUs: cpus{}, Ready: ready, Meter: m}).Run(ctx); err != nil {
			t.Error(err)
		}
	})
	c, err := grpc.NewClient("unix://"+Socket(dir), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	stop = func() { c.Close(); cancel(); running.Wait() }
	t.Cleanup(stop)
	if _, err := os.Lstat(Socket(dir)); err == nil && len(statuses.List()) == 0 {
		t.Error("it is served before it is known what runs")
	}
	close(ready)
	return c, stop
}

// TestPodResources: pods that haven't ended are listed with what goes on running in them, by both versions; only root can ask; another agent's
// socket takes the place of the first.
func TestPodResources(t *testing.T) {
	dir, statuses, m := t.TempDir(), podstatus.NewStore(), &meter{}
	publish(statuses, "web", v1.PodRunning)
	publish(statuses, "new", v1.PodPending)
	publish(statuses, "done", v1.PodSucceeded)
	publish(statuses, "broken", v1.PodFailed)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for range 2 {
		c, stop := serve(t, dir, statuses, m)
		client := api.NewPodResourcesListerClient(c)
		list, err := client.List(ctx, &api.ListPodResourcesRequest{}, grpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, p := range list.PodResources {
			for _, container := range p.Containers {
				got = append(got, p.Namespace+"/"+p.Name+"/"+container.Name)
			}
		}
		if want := "default/new/sidecar default/new/a default/new/b default/web/sidecar default/web/a default/web/b"; strings.Join(got, " ") != want {
			t.Errorf("%q, want %s", got, want)
		}
		old, err := v1alpha1.NewPodResourcesListerClient(c).List(ctx, &v1alpha1.ListPodResourcesRequest{})
		if err != nil || len(old.PodResources) != 2 || len(old.PodResources[1].Containers) != 3 || old.PodResources[1].Containers[1].Devices[0].DeviceIds[0] != "one" {
			t.Errorf("v1alpha1: %v, %v", old, err)
		}
		one, err := client.Get(ctx, &api.GetPodResourcesRequest{PodNamespace: "default", PodName: "web"})
		if err != nil || one.PodResources.GetName() != "web" || len(one.PodResources.Containers) != 3 || len(one.PodResources.Containers[1].Devices) != 1 || one.PodResources.Containers[1].Devices[0].Topology.Nodes[0].ID != 1 {
			t.Errorf("one: %v, %v", one, err)
		}
		if b := one.GetPodResources().GetContainers()[2]; len(b.CpuIds) != 2 {
			t.Errorf("CPUs: %v", b)
		}
		if _, err := client.Get(ctx, &api.GetPodResourcesRequest{PodNamespace: "other", PodName: "web"}); status.Code(err) != codes.NotFound || !strings.Contains(err.Error(), `"web"`) {
			t.Errorf("one that isn't there: %v", err)
		}
		if all, err := client.GetAllocatableResources(ctx, &api.AllocatableResourcesRequest{}); err != nil || len(all.Devices) != 2 || len(all.CpuIds) != 3 || len(all.Memory) > 0 {
			t.Errorf("allocatable: %v, %v", all, err)
		}
		if info, err := os.Lstat(Socket(dir)); err != nil || info.Mode() != os.ModeSocket|0o600 {
			t.Errorf("%v, %v", info, err)
		}
		stop()
	}
	if got, want := strings.Join(m.asked[:5], ","), "v1 List true,v1alpha1 List true,v1 Get true,v1 Get false,v1 GetAllocatableResources true"; got != want {
		t.Errorf("counted %s, want %s", got, want)
	}
}

// TestTooManyCalls: one who asks all the time is told to wait.
func TestTooManyCalls(t *testing.T) {
	c, _ := serve(t, t.TempDir(), podstatus.NewStore(), &meter{})
	client := api.NewPodResourcesListerClient(c)
	refused := 0
	began := time.Now()
	for range 1000 {
		if _, err := client.List(t.Context(), &api.ListPodResourcesRequest{}, grpc.WaitForReady(true)); err != nil && status.Convert(err).Message() == "rejected by rate limit" {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if served, most := 1000-refused, burst+1+int(perSecond*time.Since(began).Seconds()); served > most || served < burst {
		t.Errorf("%d calls were served, at most %d may be", served, most)
	}
}

// BenchmarkList has 500 pods listed.
func BenchmarkList(b *testing.B) {
	statuses := podstatus.NewStore()
	for i := range 500 {
		publish(statuses, fmt.Sprint("pod-", i), v1.PodRunning)
	}
	l := lister{Server: New(Config{Statuses: statuses, Devices: devices{}, CPUs: cpus{}, Meter: &meter{}})}
	for b.Loop() {
		if _, err := l.List(b.Context(), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// cpus are those of container b.
type cpus struct{}

func (cpus) Own(_ types.UID, container string) cpuset.CPUSet {
	if container == "b" {
		return cpuset.New(2, 3)
	}
	return cpuset.New()
}

func (cpus) Allocatable() cpuset.CPUSet { return cpuset.New(1, 2, 3) }
