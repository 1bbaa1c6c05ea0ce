package view

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubelet/config/v1beta1"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/host/capacity"
	"github.com/deckhand-node/deckhand/internal/kit/modules"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/resources/assign"
	"github.com/deckhand-node/deckhand/internal/resources/pressure"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

func cpus(amount string) v1.ResourceList {
	return v1.ResourceList{v1.ResourceCPU: resource.MustParse(amount)}
}

func podWith(name, limit string) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Limits: cpus(limit)}}}}, Status: v1.PodStatus{QOSClass: v1.PodQOSBurstable}}
	p.Namespace, p.Name, p.UID = "default", name, types.UID(name)
	return p
}

// TestNode: pods that hold something are told with what admission counts, also during a resize, and by what is allocated; the rest isn't.
func TestNode(t *testing.T) {
	statuses, merger := podstatus.NewStore(), desired.New(logr.Discard(), pod.SourceFile)
	resized, begins := podWith("resized", "2"), podWith("begins", "1")
	for _, p := range []*v1.Pod{resized, podWith("ended", "1")} {
		statuses.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p}, Status: &p.Status})
	}
	merger.Report(desired.Report{Source: pod.SourceFile, Claims: []desired.Claim{{Desired: &pod.Desired{Pod: begins, Source: pod.SourceFile}}}})
	a := New(Config{Node: "n1", CPUs: func() *assign.Status { return nil }, Statuses: statuses, Desired: merger, Cluster: &troubles{}, Disks: disks{}, Hanging: answers, NodeProblems: func() []pod.Problem { return []pod.Problem{{Message: "unwatched"}} }, Modules: func() []modules.Status { return []modules.Status{{Name: "workers", State: modules.Running}} }, Capacity: capacity.Node{CPUs: 4, Memory: 1 << 30},
		Current: func() *config.Config {
			return &config.Config{Kubelet: v1beta1.KubeletConfiguration{SystemReserved: map[string]string{"cpu": "1"}}}
		},
		Facts: func() *nodefacts.Facts {
			return &nodefacts.Facts{HostIPs: []string{"192.0.2.1"}, Capacity: cpus("4"), Allocatable: cpus("3")}
		},
		Thrashing: func() string { return "99% of swap" },
		Pressure: func() pressure.Status {
			return pressure.Status{Observed: true, Age: time.Second, Unread: errors.New("pid.available: no /proc"), Woken: "memory.available: tasks wait for memory", Quiet: time.Minute,
				Signals: []pressure.SignalStatus{
					{Threshold: pressure.Threshold{Signal: pressure.NodeMemory, Least: capacity.Amount{Percent: 10}, Grace: time.Minute}, Readable: true, Reading: pressure.Reading{Available: 5, Capacity: 100}, Least: 10, Met: true, For: 20 * time.Second, Left: 40 * time.Second},
					{Threshold: pressure.Threshold{Signal: pressure.Processes, Least: capacity.Amount{Value: 1000}}},
				}}
		},
		Holdings: func() map[types.UID]allocation.Holding {
			return map[types.UID]allocation.Holding{
				"resized": {Requests: admission.Amount{v1.ResourceCPU: 2000}, Allocation: &pod.Allocation{Containers: map[string]v1.ResourceRequirements{"main": {Limits: cpus("1")}}}},
				"begins":  {Requests: admission.Amount{v1.ResourceCPU: 1000, v1.ResourceMemory: 5 << 20, v1.ResourcePods: 1}},
				"gone":    {Requests: admission.Amount{v1.ResourceCPU: 500}},
			}
		},
		Devices: func(uid types.UID) map[string][]v1.ResourceStatus {
			if uid == "begins" {
				return nil
			}
			return map[string][]v1.ResourceStatus{"main": {{Name: "example.com/gpu", Resources: []v1.ResourceHealth{{ResourceID: v1.ResourceID(uid)}}}}}
		}})
	has := func(id v1.ResourceID) map[string][]v1.ResourceStatus {
		return map[string][]v1.ResourceStatus{"main": {{Name: "example.com/gpu", Resources: []v1.ResourceHealth{{ResourceID: id}}}}}
	}
	now := time.Now()
	got, err := a.Node(t.Context())
	five := int64(5)
	evictions := local.Evictions{Observed: now.Add(-time.Second), Unread: "pid.available: no /proc", Alarm: "memory.available: tasks wait for memory", AlarmAt: now.Add(-time.Minute), Thresholds: []local.EvictionThreshold{
		{Signal: "memory.available", Resource: "memory", Threshold: "10%", Least: 10, Available: &five, Capacity: 100, Grace: metav1.Duration{Duration: time.Minute}, MetSince: now.Add(-20 * time.Second), EvictsFrom: now.Add(40 * time.Second)},
		{Signal: "pid.available", Resource: "pids", Threshold: "1k"},
	}}
	if got.Evictions == nil || !cmp.Equal(*got.Evictions, evictions, cmpopts.EquateApproxTime(10*time.Second)) {
		t.Errorf("evictions %+v, want %+v", got.Evictions, evictions)
	}
	if len(got.Problems) != 2 || got.Problems[1].Message != "unwatched" || got.Problems[0].Origin != "swap" || !strings.Contains(got.Problems[0].Message, "99% of swap") {
		t.Errorf("problems %+v", got.Problems)
	}
	got.Evictions, got.Problems = nil, nil
	want := local.Node{Name: "n1", HostIPs: []string{"192.0.2.1"}, Capacity: cpus("4"), Allocatable: cpus("3"), Reserved: capacity.Reserved{System: cpus("1")}, Modules: []modules.Status{{Name: "workers", State: modules.Running}}, Pods: []local.NodePod{
		{UID: "gone", Requests: cpus("500m"), Devices: has("gone")},
		{Namespace: "default", Name: "begins", UID: "begins", QOSClass: v1.PodQOSBurstable, Limits: cpus("1"),
			Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("1"), v1.ResourceMemory: resource.MustParse("5Mi"), v1.ResourcePods: resource.MustParse("1")}},
		{Namespace: "default", Name: "resized", UID: "resized", QOSClass: v1.PodQOSBurstable, Requests: cpus("2"), Limits: cpus("1"), Devices: has("resized")},
	}}
	if err != nil || !equality.Semantic.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v\nwant %+v", got, err, want)
	}
}
