package nodeobject

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
)

func TestCheckDriver(t *testing.T) {
	labels := map[string]string{"zone": "a", "empty": ""}
	for want, d := range map[string]nodefacts.CSIDriver{
		"": {Name: "a.example", NodeID: "1", Topology: map[string]string{"zone": "a", "example.com/rack": "7", "empty": ""}},
		"its topology is zone=b, but the node has the label zone=a: correct the driver's configuration, or remove the label from the node":  {Name: "a", NodeID: "1", Topology: map[string]string{"rack": "1", "zone": "b"}},
		"its topology is empty=b, but the node has the label empty=: correct the driver's configuration, or remove the label from the node": {Name: "a", NodeID: "1", Topology: map[string]string{"empty": "b"}},
	} {
		err := checkDriver(labels, &d)
		if (err == nil) != (want == "") || err != nil && err.Error() != want {
			t.Errorf("%+v: %v, want %q", d, err, want)
		}
	}
}

func TestDriverPatch(t *testing.T) {
	type texts = map[string]string
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Labels: texts{"zone": "a"}, Annotations: texts{"other": "x", nodeIDs: `{"a":"1"}`}}}
	for _, c := range []struct {
		ids, topology texts
		want          string
	}{
		{texts{"a": "1"}, texts{"zone": "a"}, ""},
		{texts{"a": "1"}, nil, ""},
		{texts{"b": "2", "a": "1"}, texts{"zone": "a", "rack": "7"}, `{"metadata":{"annotations":{"csi.volume.kubernetes.io/nodeid":"{\"a\":\"1\",\"b\":\"2\"}"},"labels":{"rack":"7"}}}`},
		{texts{"a": "1"}, texts{"rack": "7"}, `{"metadata":{"labels":{"rack":"7"}}}`},
		{nil, nil, `{"metadata":{"annotations":{"csi.volume.kubernetes.io/nodeid":null}}}`},
	} {
		if got, err := driverPatch(n, c.ids, c.topology); err != nil || string(got) != c.want {
			t.Errorf("%v, %v: %s, %v; want %s", c.ids, c.topology, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "null", "[]", "{", `{"a":1}`} {
		n.Annotations[nodeIDs] = bad
		if got, err := driverPatch(n, texts{"a": "1"}, nil); err != nil || !strings.Contains(string(got), `"{\"a\":\"1\"}"`) {
			t.Errorf("from %q: %s, %v", bad, got, err)
		}
	}
}

// picky is a server that rejects some patches.
type picky struct {
	*fakeNodes
	rejects atomic.Pointer[func(body string) error]
}

func (s *picky) Patch(ctx context.Context, name string, body []byte) (*v1.Node, error) {
	if rejects := s.rejects.Load(); rejects != nil {
		if err := (*rejects)(string(body)); err != nil {
			return s.call("patch", func() error { return err })
		}
	}
	return s.fakeNodes.Patch(ctx, name, body)
}

// TestDrivers: CSI drivers' IDs and topology are on the node's object once they have registered, in one call each.
func TestDrivers(t *testing.T) {
	for _, register := range []bool{true, false} {
		t.Run(fmt.Sprint("registers ", register), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { drivers(t, register) }) })
	}
}

func drivers(t *testing.T, register bool) {
	board := nodefacts.NewBoard(nodefacts.Facts{})
	facts, err := board.Writer("a test", Fields)
	if err != nil {
		t.Fatal(err)
	}
	server, changed := &picky{fakeNodes: &fakeNodes{}}, wake.NewSlot()
	old := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node1", UID: "old", Labels: map[string]string{"zone": "a"}, Annotations: map[string]string{"theirs": "x", nodeIDs: `{"left":"1"}`}}}
	server.node = old.DeepCopy()
	var registered atomic.Pointer[[]nodefacts.CSIDriver]
	has := func(all ...nodefacts.CSIDriver) {
		registered.Store(&all)
		changed.Wake()
	}
	has()
	status := v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}}
	n := New(Config{Identity: Identity{Name: "node1"}, Register: register, API: server, Every: 1000 * time.Hour, Facts: facts, Known: &known{}, Event: func(pod.Event) {}, Changed: changed, Log: logr.Discard(),
		Status: func() v1.NodeStatus { return *status.DeepCopy() }, Settled: time.Minute, Drivers: func() []nodefacts.CSIDriver { return *registered.Load() }})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- n.Run(ctx) }()
	defer func() { cancel(); <-done }()
	want := func(when string, calls ...string) {
		t.Helper()
		synctest.Wait()
		if got := server.did(); !slices.Equal(got, calls) {
			t.Errorf("%s: the calls are %q, want %q", when, got, calls)
		}
	}
	is := func(when, ids, labels, published string) {
		t.Helper()
		synctest.Wait()
		server.mu.Lock()
		defer server.mu.Unlock()
		var got []string
		for _, key := range []string{"rack", "zone"} {
			if value, has := server.node.Labels[key]; has {
				got = append(got, key+"="+value)
			}
		}
		if l := strings.Join(got, " "); server.node.Annotations[nodeIDs] != ids || l != labels {
			t.Errorf("%s: the node has %q and %s; want %q and %s", when, server.node.Annotations[nodeIDs], l, ids, labels)
		}
		got = nil
		for _, name := range slices.Sorted(maps.Keys(board.Now().CSILabels)) {
			e := board.Now().CSILabels[name]
			got = append(got, strings.TrimSpace(fmt.Sprintf("%s:%d %.30s", name, e.Generation, e.Refused)))
		}
		if p := strings.Join(got, ", "); p != published {
			t.Errorf("%s: published is %q, want %q", when, p, published)
		}
		if server.node.UID == "old" && server.node.Annotations["theirs"] != "x" {
			t.Errorf("%s: others' annotations are gone", when)
		}
	}
	driver := func(name string, generation uint64, topology ...string) nodefacts.CSIDriver {
		d := nodefacts.CSIDriver{Name: name, NodeID: "id-" + name, Generation: generation, Topology: map[string]string{}}
		for _, t := range topology {
			key, value, _ := strings.Cut(t, "=")
			d.Topology[key] = value
		}
		return d
	}
	synctest.Wait()
	server.did()
	a, b, c := driver("a", 1, "rack=7", "zone=a"), driver("b", 2, "zone=b"), driver("c", 3)
	has(a)
	want("a driver", "patch")
	is("a driver", `{"a":"id-a","left":"1"}`, "rack=7 zone=a", "a:1")
	has(a, b)
	want("in another zone than the node")
	is("in another zone than the node", `{"a":"id-a","left":"1"}`, "rack=7 zone=a", "a:1, b:2 its topology is zone=b, but th")
	has(a, b, c)
	want("a third one", "patch")
	a.Generation = 4
	has(a, b, c)
	want("the first one again")
	is("the first one again", `{"a":"id-a","c":"id-c","left":"1"}`, "rack=7 zone=a", "a:4, b:2 its topology is zone=b, but th, c:3")
	time.Sleep(59 * time.Second)
	want("before a minute is over")
	time.Sleep(2 * time.Second)
	want("after a minute", "patch")
	is("after a minute", `{"a":"id-a","c":"id-c"}`, "rack=7 zone=a", "a:4, b:2 its topology is zone=b, but th, c:3")
	has()
	want("all are gone", "patch")
	is("all are gone", "", "rack=7 zone=a", "")
	for range 2 {
		has(a)
		want("it is back", "patch")
		has()
		want("it is gone again", "patch")
	}
	time.Sleep(24 * time.Hour)
	want("at rest")
	server.rejects.Store(new(func(body string) error {
		if strings.Contains(body, "id-a") {
			return errors.NewForbidden(nodeGroup, "node1", fmt.Errorf("no"))
		}
		return nil
	}))
	has(a, c)
	want("one is rejected", "patch", "patch")
	is("one is rejected", `{"c":"id-c"}`, "rack=7 zone=a", `a:4 write CSI drivers' IDs and top, c:3`)
	has(a, c)
	want("it isn't tried again")
	server.rejects.Store(nil)
	a.Generation = 5
	has(a, c)
	want("until it registers again", "patch")
	server.rejects.Store(new(func(string) error { return errors.NewInternalError(fmt.Errorf("a webhook is down")) }))
	c.Generation, c.NodeID = 6, "other"
	has(a, c)
	synctest.Wait()
	is("the server fails", `{"a":"id-a","c":"id-c"}`, "rack=7 zone=a", "a:5")
	server.rejects.Store(nil)
	time.Sleep(time.Second)
	is("a second later", `{"a":"id-a","c":"other"}`, "rack=7 zone=a", "a:5, c:6")
	server.did()
	server.others(func(*v1.Node) *v1.Node { return nil })
	synctest.Wait()
	if !register {
		if f := board.Now(); f.UID != "" || len(f.CSILabels) > 0 {
			t.Errorf("without an object: %+v", f)
		}
		server.others(func(*v1.Node) *v1.Node {
			n := old.DeepCopy()
			n.UID, n.Annotations, n.Labels = "new", nil, nil
			return n
		})
	}
	is("made again", `{"a":"id-a","c":"other"}`, "rack=7 zone=a", "a:5, c:6")
	// Another client puts a driver there that isn't registered.
	server.did()
	for range 5 {
		server.others(func(n *v1.Node) *v1.Node { n = n.DeepCopy(); n.Annotations[nodeIDs] = `{"x":"1"}`; return n })
		synctest.Wait()
	}
	if calls := server.did(); len(calls) != 1 {
		t.Errorf("another client puts its driver back: calls %q", calls)
	}
}
