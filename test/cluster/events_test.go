package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/deckhand-node/deckhand/internal/cluster/apiclient"
	"github.com/deckhand-node/deckhand/internal/cluster/eventsink"
	"github.com/deckhand-node/deckhand/internal/cluster/podobject"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/internal/report/events"
	"github.com/deckhand-node/deckhand/internal/report/podstatus"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
	"github.com/deckhand-node/deckhand/test/e2e/node"
)

// eventsAreTold: kubectl shows what happens to a node and its pods, also what happened while the API server was away.
func eventsAreTold(t *testing.T, p *plane.Plane, binary string) {
	r := join(t, p, binary, "")
	r.Write("a.yaml", fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: told}, spec: {containers: [{name: web, image: %s, readinessProbe: {tcpSocket: {port: 1}, periodSeconds: 1}}]}}", node.Image))
	r.Write("bad.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: bad}, spec: {containers: []}}")
	r.Start()
	r.created()
	r.is(v1.ConditionTrue)
	pod := "Pod told-" + node.Name
	r.tells("Node "+node.Name+" Starting", "Node "+node.Name+" InvalidManifest", pod+" Created", pod+" Started", pod+" Unhealthy")

	r.kubectl("cordon", node.Name)
	r.tells("Node " + node.Name + " NodeNotSchedulable")
	r.kubectl("uncordon", node.Name)
	r.tells("Node " + node.Name + " NodeSchedulable")
	r.kubectl("patch", "node", node.Name, "--subresource=status", "-p", `{"status": {"nodeInfo": {"bootID": "that-of-before"}}}`)
	r.tells("Node " + node.Name + " Rebooted")
	if out := r.kubectl("describe", "node", node.Name); !strings.Contains(out, "kubelet  ") || !strings.Contains(out, "Starting kubelet.") {
		t.Errorf("describe: %s", out)
	}

	first := r.told()[pod+" Unhealthy"]
	r.Eventually("a repeated event is counted", func() error {
		if now := r.told()[pod+" Unhealthy"]; now.Name != first.Name || now.Count <= first.Count || now.Source.Host != node.Name || now.ReportingController != "kubelet" {
			return fmt.Errorf("event %+v", now)
		}
		return nil
	})
}

// told are the events at the API server, by what they are about.
func (r *rig) told() map[string]v1.Event {
	r.t.Helper()
	var list v1.EventList
	if err := json.Unmarshal([]byte(r.kubectl("get", "events", "-A", "-o", "json")), &list); err != nil {
		r.t.Fatal(err)
	}
	told := map[string]v1.Event{}
	for _, e := range list.Items {
		if e.Source.Component == "kubelet" {
			told[fmt.Sprintf("%s %s %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason)] = e
		}
	}
	return told
}

// tells waits until the API server has these events: kind, name and reason of each.
func (r *rig) tells(want ...string) {
	r.t.Helper()
	r.Eventually("events", func() error {
		told := r.told()
		for _, w := range want {
			if _, ok := told[w]; !ok {
				return fmt.Errorf("no event %q in %v", w, told)
			}
		}
		return nil
	})
}

// eventMeter counts events.
type eventMeter struct{ told, lost atomic.Int64 }

func (m *eventMeter) EventSent()       { m.told.Add(1) }
func (m *eventMeter) EventLost(string) { m.lost.Add(1) }

// nothingRefused: all pods are run.
type nothingRefused struct{}

func (nothingRefused) Refused() []pod.Refusal               { return nil }
func (nothingRefused) Subscribe() (<-chan struct{}, func()) { return nil, func() {} }

// eventsBlockNothing: a status is at the API server as soon while a thousand events happen each second, of which five may be told.
func eventsBlockNothing(t *testing.T, p *plane.Plane) {
	const name, pods, times, perSecond, burst = "storm", 10, 5, 5, 10
	var n network
	c := client(t, p.Node(name), kruntime.ContentTypeProtobuf, &n)
	c.SetRates(apiclient.Rate{PerSecond: 1000, Burst: 1000}, apiclient.Rate{PerSecond: perSecond, Burst: burst})
	var manifests strings.Builder
	for i := range pods {
		manifests.WriteString(podNamed(fmt.Sprint("storm", i), spec("[serve]", "nodeName: "+name+",")))
	}
	if out, err := p.Kubectl(manifests.String(), "apply", "-f", "-"); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() {
		if out, err := p.Kubectl(manifests.String(), "delete", "--force", "--grace-period=0", "--ignore-not-found", "-f", "-"); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	ring, meter, cache, statuses := events.New(1000), &eventMeter{}, podobject.NewCache(podobject.PodsOf(c, name), logr.Discard()), podstatus.NewStore()
	sink := eventsink.New(eventsink.Config{Ring: ring, API: eventsink.EventsOf(c), Node: name, Meter: meter, Log: logr.Discard()})
	publisher := podobject.NewPublisher(podobject.PublisherConfig{Cache: cache, Statuses: statuses, Refusals: nothingRefused{}, Log: logr.Discard()})
	changed, stop := cache.Subscribe()
	defer stop()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for _, run := range []func(context.Context) error{cache.Run, publisher.Run, sink.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	await := func(what string, is func() bool) {
		t.Helper()
		late := time.After(node.Deadline)
		for !is() {
			select {
			case <-changed.Woken():
				changed.Drain()
			case <-late:
				t.Fatalf("not within %s: %s", node.Deadline, what)
			}
		}
	}
	var all []*v1.Pod
	await("all pods are known", func() bool { all, _ = cache.Pods(); return len(all) == pods })
	ready := v1.ConditionFalse
	told := func(uid types.UID) bool { return condition(cache.Get(uid), v1.PodReady).Status == ready }
	// median is how long a status takes until the API server's answer has it.
	median := func() time.Duration {
		t.Helper()
		var took []time.Duration
		for range times {
			if ready == v1.ConditionTrue {
				ready = v1.ConditionFalse
			} else {
				ready = v1.ConditionTrue
			}
			for _, p := range all {
				began := time.Now()
				statuses.Publish(p.UID, pod.Report{Desired: &pod.Desired{Pod: p, Source: pod.SourceAPI, RequiresTerminalPhase: true},
					Status: &v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: ready}}}})
				await(p.Name+" is told", func() bool { return told(p.UID) })
				took = append(took, time.Since(began))
			}
		}
		slices.Sort(took)
		return took[len(took)/2]
	}
	median() // connections are there then
	quiet := median()
	began := time.Now()
	storm, end := context.WithCancel(ctx)
	happened := 0
	running.Go(func() {
		every := time.NewTicker(10 * time.Millisecond)
		defer every.Stop()
		for storm.Err() == nil {
			select {
			case <-storm.Done():
			case now := <-every.C: // catches up with what a busy machine left out
				for ; happened < int(now.Sub(began)/time.Millisecond); happened++ {
					ring.Add(events.Entry{Type: v1.EventTypeWarning, Reason: pod.ReasonUnhealthy, Message: fmt.Sprint("event ", happened),
						Object: v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: fmt.Sprint("pod", happened)}})
				}
			}
		}
	})
	for meter.lost.Load() == 0 { // until more happened than can wait
		median()
	}
	loud := median()
	end()
	took := time.Since(began)
	t.Logf("a status is told after %s, and after %s while 1,000 events happen each second; of those of %s %d were told, and %d lost", quiet, loud, took.Round(time.Millisecond), meter.told.Load(), meter.lost.Load())
	if loud > quiet+time.Second/perSecond/2 { // one that waited for events would wait for the turn of each
		t.Error("events delay statuses")
	}
	if most := int64(burst + perSecond*took.Seconds() + 1); meter.told.Load() > most {
		t.Errorf("%d events were told, at most %d may be", meter.told.Load(), most)
	}
}
