package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr/testr"
	v1 "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/deckhand-node/deckhand/internal/cluster/csinode"
	"github.com/deckhand-node/deckhand/internal/cluster/csinode/csinodetest"
	"github.com/deckhand-node/deckhand/internal/cluster/nodefacts"
	"github.com/deckhand-node/deckhand/internal/cluster/nodeobject"
	"github.com/deckhand-node/deckhand/internal/kit/wake"
	"github.com/deckhand-node/deckhand/internal/pod"
	"github.com/deckhand-node/deckhand/test/cluster/plane"
)

// noNode remembers no object of a node.
type noNode struct{}

func (noNode) Node() *v1.Node { return nil }

func (noNode) SetNode(*v1.Node) {}

// TestCSINode: CSI drivers that register get to the objects of a real API server, with no more than a node's rights.
func TestCSINode(t *testing.T) {
	p := plane.Start(t, program)
	for _, contentType := range []string{runtime.ContentTypeProtobuf, runtime.ContentTypeJSON} {
		name := "csi-" + contentType[len(contentType)-4:]
		var n network
		c := client(t, p.Node(name), contentType, &n)
		node, err := nodeobject.NodesOf(c).Create(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err != nil {
			t.Fatal(err)
		}
		csinodetest.Run(t, name, node.UID, csinode.CSINodesOf(c))
	}
	registered(t, p)
}

// registered runs the parts of an agent that publish drivers.
func registered(t *testing.T, p *plane.Plane) {
	const name = "csi"
	var n network
	c := client(t, p.Node(name), runtime.ContentTypeProtobuf, &n)
	board := nodefacts.NewBoard(nodefacts.Facts{})
	writer := func(what nodefacts.Field) *nodefacts.Writer {
		w, err := board.Writer(fmt.Sprint(what), what)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	facts, changed := writer(nodefacts.CSIDrivers), wake.NewSlot()
	node := nodeobject.New(nodeobject.Config{Identity: nodeobject.Identity{Name: name, Arch: "amd64"}, Register: true, API: nodeobject.NodesOf(c), Every: time.Hour,
		Status: func() v1.NodeStatus { return v1.NodeStatus{} }, Changed: changed, Facts: writer(nodeobject.Fields), Known: noNode{}, Event: func(pod.Event) {},
		Drivers: func() []nodefacts.CSIDriver { return board.Now().CSIDrivers }, Log: testr.New(t)})
	object := csinode.New(csinode.Config{Node: name, Board: board, Facts: writer(csinode.Fields), API: csinode.CSINodesOf(c), Log: testr.New(t)})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, run := range []func(context.Context) error{node.Run, object.Run} {
		running.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	defer func() { cancel(); running.Wait() }()
	entries, stop := board.Watch(nodefacts.CSINode)
	defer stop()
	kubectl := func(args ...string) string {
		t.Helper()
		out, err := p.Kubectl("", args...)
		if err != nil {
			t.Fatal(err, out)
		}
		return out
	}
	generation := uint64(0)
	// register registers one driver, and returns why it is refused.
	register := func(id string, topology map[string]string) string {
		t.Helper()
		generation++
		facts.Set(func(f *nodefacts.Facts) {
			f.CSIDrivers = []nodefacts.CSIDriver{{Name: "a.example", NodeID: id, Topology: topology, Limit: 5, Generation: generation}}
		})
		changed.Wake()
		for {
			if e := board.Now().CSINode["a.example"]; e.Generation == generation {
				return e.Refused
			}
			select {
			case <-entries:
			case <-time.After(time.Minute):
				t.Fatalf("no result after a minute: %+v", board.Now())
			}
		}
	}
	is := func(when, want string) {
		t.Helper()
		var o storage.CSINode
		if err := json.Unmarshal([]byte(kubectl("get", "csinode", name, "-o", "json")), &o); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, d := range o.Spec.Drivers {
			got += fmt.Sprintf("%s=%s%v%d ", d.Name, d.NodeID, d.TopologyKeys, *d.Allocatable.Count)
		}
		got += kubectl("get", "node", name, "-o", `jsonpath={.metadata.annotations.csi\.volume\.kubernetes\.io/nodeid} {.metadata.labels.example\.com/rack}`)
		if got != want || len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != board.Now().UID {
			t.Errorf("%s: %s, owners %+v; want %s", when, got, o.OwnerReferences, want)
		}
	}
	rack := map[string]string{"example.com/rack": "7"}
	if why := register("1", rack); why != "" {
		t.Errorf("refused: %s", why)
	}
	is("registered", `a.example=1[example.com/rack]5 {"a.example":"1"} 7`)
	if why := register("2", rack); why != "" {
		t.Errorf("with another ID: %s", why)
	}
	is("with another ID", `a.example=2[example.com/rack]5 {"a.example":"2"} 7`)
	kubectl("delete", "csinode", name)
	if why := register("2", rack); why != "" {
		t.Errorf("after its object was deleted: %s", why)
	}
	is("after its object was deleted", `a.example=2[example.com/rack]5 {"a.example":"2"} 7`)
	if why := register("3", map[string]string{"example.com/rack": "8"}); !strings.Contains(why, "the node has the label example.com/rack=7") {
		t.Errorf("in another rack: %q", why)
	}
	is("in another rack", `a.example=2[example.com/rack]5 {"a.example":"2"} 7`)
	if why := register("2", rack); why != "" {
		t.Errorf("back in its rack: %s", why)
	}
	kubectl("delete", "node", name)
	if why := register("4", rack); why != "" {
		t.Errorf("after the node was deleted: %s", why)
	}
	is("after the node was deleted", `a.example=4[example.com/rack]5 {"a.example":"4"} 7`)
	if wrong := plane.Wrong(p.Calls()); len(wrong) > 0 {
		t.Errorf("what a node may not: %q", wrong)
	}
	if why := register("5", map[string]string{"node-restriction.kubernetes.io/rack": "7"}); !strings.Contains(why, "is not allowed to modify labels") {
		t.Errorf("with a label that a node may not set: %q", why)
	}
	is("with a label that a node may not set", `a.example=4[example.com/rack]5 {"a.example":"4"} 7`)
}
