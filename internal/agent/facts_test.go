package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/config"
	"github.com/deckhand-node/deckhand/internal/host/checkpoint"
	"github.com/deckhand-node/deckhand/internal/lifecycle/admission"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/report/metrics"
	"github.com/deckhand-node/deckhand/internal/resources/allocation"
	"github.com/deckhand-node/deckhand/internal/runtime/health"
	"github.com/deckhand-node/deckhand/internal/volume/manager/volumestate"
)

// A pod that waits for the end of the node's pressure is woken when that comes, and nothing else is. Events tell each change.
func TestPressureThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := nodefacts.NewBoard(nodefacts.Facts{HostIPs: []string{"192.0.2.1"}, Pressure: admission.Pressure{Disk: true}})
		pressure, err := board.Writer("a test", nodefacts.Pressure)
		if err != nil {
			t.Fatal(err)
		}
		n, w := &node{cfg: &config.Config{Standalone: true}, facts: board}, newWakes()
		var woken []types.UID
		allocations := allocation.New(allocation.Config{Store: checkpoint.New(t.TempDir()), Node: func() *admission.Node { return n.admission(nil) },
			Pods: w.admissible, Runs: func(types.UID) bool { return false },
			Wake:  func(uid types.UID) { woken = append(woken, uid) },
			Meter: metrics.New(metrics.Info{}).Resources, Log: logr.Discard()})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		recorder := events.New(10)
		follower := followFacts(board, allocations, w, events.Node{Recorder: recorder, Name: "n"})
		if err := follower.Start(ctx); err != nil {
			t.Fatal(err)
		}
		pressure.Set(func(f *nodefacts.Facts) { f.Pressure.Memory = true }) // before it runs
		go func() { done <- follower.Run(ctx) }()
		defer func() { cancel(); <-done }()
		synctest.Wait()
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}}
		var f *pod.Failure
		if _, err := allocations.Admit(ctx, p); !errors.As(err, &f) || f.Wait != pod.WaitForPressure {
			t.Fatalf("under pressure: %v", err)
		}
		shown := alone{facts: board.Now, runtime: health.New(nil, 0, logr.Discard()), healthy: func(time.Time) error { return nil }}.Conditions()
		if c := shown[1]; c.Type != v1.NodeDiskPressure || c.Status != v1.ConditionTrue || c.Reason != "KubeletHasDiskPressure" {
			t.Errorf("without a cluster the node's conditions are %+v", shown)
		}
		before, objects := allocations.ResourcesFreedAt(), w.objects.time()
		pressure.Set(func(f *nodefacts.Facts) { f.Pressure = admission.Pressure{} })
		synctest.Wait()
		if !slices.Equal(woken, []types.UID{"1"}) || !allocations.ResourcesFreedAt().After(before) || w.objects.time().After(objects) || len(w.volumes.Drain()) > 0 {
			t.Errorf("woken are %v; admission is tried again at %v, objects at %v", woken, allocations.ResourcesFreedAt(), w.objects.time())
		}
		if _, err := allocations.Admit(ctx, p); err != nil {
			t.Errorf("after it: %v", err)
		}
		var told []string
		for _, e := range recorder.List() {
			told = append(told, fmt.Sprint(e.Object.Kind, " ", e.Type, " ", e.Reason, ": ", e.Message))
		}
		if want := []string{"Node Normal NodeHasInsufficientMemory: Node n status is now: NodeHasInsufficientMemory",
			"Node Normal NodeHasSufficientMemory: Node n status is now: NodeHasSufficientMemory", "Node Normal NodeHasNoDiskPressure: Node n status is now: NodeHasNoDiskPressure"}; !slices.Equal(told, want) {
			t.Errorf("events %q, want %q", told, want)
		}
	})
}

// A pod that waits for the node's address is woken when one is known, and those look again that go by
// the node's facts; in a cluster, that is.
func TestAnAddressThatComesLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		board := nodefacts.NewBoard(nodefacts.Facts{})
		addresses, err := board.Writer("a test", nodefacts.HostIPs)
		if err != nil {
			t.Fatal(err)
		}
		n, w := &node{cfg: &config.Config{}, facts: board}, newWakes()
		var woken []types.UID
		allocations := allocation.New(allocation.Config{Store: checkpoint.New(t.TempDir()), Node: func() *admission.Node { return n.admission(nil) },
			Pods: w.admissible, Runs: func(types.UID) bool { return false },
			Wake:  func(uid types.UID) { woken = append(woken, uid) },
			Meter: metrics.New(metrics.Info{}).Resources, Log: logr.Discard()})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- followFacts(board, allocations, w, events.Node{Recorder: events.New(10)}).Run(ctx) }()
		defer func() { cancel(); <-done }()

		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "1"}, Spec: v1.PodSpec{HostNetwork: true}}
		var f *pod.Failure
		if _, err := allocations.Admit(ctx, p); !errors.As(err, &f) || f.Wait != pod.WaitForAddress {
			t.Fatalf("without an address: %v", err)
		}
		synctest.Wait()
		before, objects := allocations.ResourcesFreedAt(), w.objects.time()
		addresses.Set(func(f *nodefacts.Facts) { f.HostIPs = []string{"192.0.2.1"} })
		synctest.Wait()
		volumes := w.volumes.Drain()
		if len(woken) == 0 || woken[len(woken)-1] != "1" || !allocations.ResourcesFreedAt().After(before) || !w.objects.time().After(objects) || !slices.Contains(volumes, volumestate.Node) {
			t.Errorf("woken are %v; admission is tried again at %v, objects at %v, volumes are looked at for %v", woken, allocations.ResourcesFreedAt(), w.objects.time(), volumes)
		}
		if _, err := allocations.Admit(ctx, p); err != nil {
			t.Errorf("with an address: %v", err)
		}
		n.cfg.Standalone = true
		if n.admission(nil).AwaitsAddress {
			t.Error("a machine alone waits for an address that nobody tells")
		}
	})
}
