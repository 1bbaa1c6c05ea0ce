package view

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/image"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/internal/resources/pressure"
	"github.com/deckhand-node/deckhand/internal/server/local"
)

type noProbes struct{}

func (noProbes) Results(types.UID) []pod.ProbeResult    { return nil }
func (noProbes) Failures(types.UID) []pod.ProbeFailures { return nil }

// TestCauses: what a pod waits for comes with what this node knows of why. A pod that has ended, or that was rejected, has no port.
func TestCauses(t *testing.T) {
	statuses := podstatus.NewStore()
	v := New(Config{Hanging: answers, Node: "n", Statuses: statuses, Probes: noProbes{}, Pulls: func(context.Context) image.Underway { return nil },
		Rank: func(uid types.UID) *pressure.Rank {
			if uid != "memory" {
				return nil
			}
			return &pressure.Rank{Signal: pressure.NodeMemory, Resource: v1.ResourceMemory, Place: 2, Of: 3, Used: 10}
		},
		Facts: func() *nodefacts.Facts { return &nodefacts.Facts{Labels: map[string]string{"disk": "hdd"}} },
		MissingPullSecrets: func(_ context.Context, d *pod.Desired) []string {
			if d.Pod.Name != "asks" {
				t.Errorf("asked of %s", d.Pod.Name)
			}
			return []string{"regcred"}
		}})
	publish := func(name string, phase v1.PodPhase, waits ...pod.Wait) {
		p := &v1.Pod{Spec: v1.PodSpec{NodeSelector: map[string]string{"disk": "ssd"}, Containers: []v1.Container{{Name: "c", Ports: []v1.ContainerPort{{HostPort: 80}}}}}}
		p.Namespace, p.Name, p.UID = "default", name, types.UID(name)
		statuses.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p}, Status: &v1.PodStatus{Phase: phase}, Waits: waits})
	}
	publish("has", v1.PodRunning)
	publish("ended", v1.PodSucceeded)
	port := []string{"pod default/has has host port 80/TCP"}
	for name, tc := range map[string]struct {
		phase v1.PodPhase
		wait  pod.Wait
		want  []string
	}{
		"port":     {v1.PodFailed, pod.Wait{Code: pod.WaitRejected, Reason: pod.ReasonNodePorts}, port},
		"waits":    {v1.PodFailed, pod.Wait{Code: pod.WaitAdmission, For: pod.WaitForRoom}, port},
		"selector": {v1.PodFailed, pod.Wait{Code: pod.WaitRejected, Reason: pod.ReasonNodeAffinity}, []string{"its nodeSelector asks for disk=ssd: the node has disk=hdd"}},
		"memory":   {v1.PodFailed, pod.Wait{Code: pod.WaitRejected, Reason: "OutOfmemory"}, nil},
		"asks":     {v1.PodFailed, pod.Wait{Code: pod.WaitRetry, Action: pod.EnsureImage, Reason: pod.ReasonErrImagePull}, []string{"its pull secret default/regcred isn't there, and the image was asked for without it"}},
		"mounts":   {v1.PodFailed, pod.Wait{Code: pod.WaitRetry, Action: pod.PreparePod}, nil},
	} {
		publish(name, tc.phase, tc.wait)
		d := v.Details(t.Context(), types.UID(name))
		if len(d.Waits) != 1 || !cmp.Equal(d.Waits[0].Because, tc.want) {
			t.Errorf("%s: %+v, want %q", name, d.Waits, tc.want)
		}
		if (d.Eviction != nil) != (name == "memory") || d.Eviction != nil && !cmp.Equal(*d.Eviction, local.EvictionRank{Signal: "memory.available", Resource: "memory", Place: 2, Of: 3, Used: 10}) {
			t.Errorf("%s: %+v", name, d.Eviction)
		}
	}
}
